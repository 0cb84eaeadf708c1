"""Names records by their files and positions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import numpy as np
import tensorflow as tf

from orbit_runner.data.table import stored_tensor
from orbit_runner.data.tfrecord.source import Blocks


class RecordFiles(Protocol):
    """A dataset whose examples are records of files."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files, in the order in which records are numbered."""
        ...

    @property
    def blocks(self) -> Blocks:
        """Where the records are."""
        ...


class RecordNames:
    """Names records by their file and their position in it."""

    def __init__(self, source: RecordFiles) -> None:
        blocks = source.blocks
        self._firsts, self._places, self._file = (
            stored_tensor(column.astype(np.int64))
            for column in (blocks.first, blocks.place, blocks.file)
        )
        self._files = stored_tensor(np.array([os.fsencode(path) for path in source.files], object))

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns names such as `train-00: record 3`, string [k], of record indices, int64 [k]."""
        block = tf.searchsorted(self._firsts, ids, side="right") - 1
        places = ids - tf.gather(self._firsts, block) + tf.gather(self._places, block)
        files = tf.gather(self._files, tf.gather(self._file, block))
        return tf.strings.join([files, ": record ", tf.strings.as_string(places)])
