"""What a dataset of sentence pairs is, however it is stored; does not import TensorFlow.

Each way of storing pairs is a subclass beside its reader. The task asks a dataset, and never which
of them it is.
"""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any, ClassVar

from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.places import Places
from orbit_runner.data.text.source import PairSource
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary


class PairDataset(abc.ABC):
    """Pairs of sentences that a section of a config names.

    Attributes:
        section: The section, such as `train_data`.
    """

    is_text: ClassVar[bool] = False  # Whether there are files, of which a vocabulary makes ids.

    def __init__(self, section: Any) -> None:
        self.section = section

    @abc.abstractmethod
    def read(self, vocab_size: int, vocabulary: Vocabulary | None) -> PairSource:
        """Returns the pairs, read into memory once per process.

        `vocabulary` may be None if the pairs are ids. Raises `DataError` if they cannot be read.
        """

    @abc.abstractmethod
    def check(self) -> None:
        """Raises `DataError` if a file is missing, empty or cannot be read."""

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files."""
        return []

    def text_files(self) -> tuple[list[Path], list[Path]]:
        """Returns the files with the text of the sources and of the targets; none for ids."""
        return [], []

    def places(self) -> list[Places]:
        """Returns the lines of the files of each side; [] for no files."""
        return []
