"""ArrayRecord sources of a mixture, joined into one. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from orbit_runner.data.array_record.source import ArrayRecordSource
from orbit_runner.data.tfrecord.joined_records import join_blocks
from orbit_runner.data.tfrecord.source import Blocks


@dataclasses.dataclass(frozen=True, eq=False)
class JoinedArrayRecords(ArrayRecordSource):
    """The records of several sources, one source after the other."""

    sources: tuple[ArrayRecordSource, ...] = ()
    # The source of the mixture that each record comes from, integers [n].
    origins: np.ndarray | None = None

    @functools.cached_property
    def blocks(self) -> Blocks:
        """The records of each file that are used, as one block."""
        return join_blocks([(source.blocks, len(source.files)) for source in self.sources])
