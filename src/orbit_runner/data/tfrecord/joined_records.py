"""TFRecord sources of a mixture, joined into one. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from orbit_runner.data.tfrecord.source import Blocks, RecordSource


@dataclasses.dataclass(frozen=True, eq=False)
class JoinedRecords(RecordSource):
    """The records of several sources, one source after the other.

    They are read by their index, in any order: see `orbit_runner.data.tfrecord.random_access`.
    """

    sources: tuple[RecordSource, ...] = ()
    # The source of the mixture that each record comes from, integers [n].
    origins: np.ndarray | None = None

    @property
    def size(self) -> int:
        """The number of records that are used."""
        return sum(source.size for source in self.sources)

    @functools.cached_property
    def blocks(self) -> Blocks:
        """The blocks of all sources."""
        return join_blocks([(source.blocks, len(source.files)) for source in self.sources])


def join_blocks(parts: Sequence[tuple[Blocks, int]]) -> Blocks:
    """Returns the blocks of several sources as those of one.

    `parts` are the blocks and the number of files of each source.
    """
    names = [field.name for field in dataclasses.fields(Blocks)]
    columns = {
        name: np.concatenate([getattr(blocks, name) for blocks, _ in parts]) for name in names
    }
    files = np.array([count for _, count in parts], np.int64)
    columns["file"] += np.repeat(np.cumsum(files) - files, [len(one.file) for one, _ in parts])
    columns["first"] = np.cumsum(columns["records"]) - columns["records"]
    return Blocks(**columns)
