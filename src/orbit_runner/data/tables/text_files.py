"""Text files with one example per line, and a class for each file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.data.files import named_files
from orbit_runner.data.tables.columns import CATEGORY
from orbit_runner.data.tables.dataset import Block, TableDataset, TableOptions
from orbit_runner.data.text.lines import read_lines
from orbit_runner.errors import DataError

TEXT, LABEL = "text", "label"
_BLOCK_ROWS = 2**14


class TextTable(TableDataset):
    """Text files, plain or gzip, whose lines are the column `text`.

    `options.files` has the files of each class, which is the column `label`. Raises `DataError` if
    a file is missing, or is not UTF-8.
    """

    name = "text_files"

    def __init__(self, *, data_dir: str, input_path: Sequence[str], options: TableOptions) -> None:
        try:
            self._labels = [
                (label, path)
                for label, names in options.files
                for path in named_files(self.name, data_dir, names)
            ]
        except DataError as error:
            raise DataError(str(error), field="files", code=error.code) from None
        self.files = tuple(path for _, path in self._labels)
        twice = next((path for path in self.files if self.files.count(path) > 1), None)
        if twice is not None:
            raise DataError(
                f"{self.name}: {twice} is listed twice", field="files", code="set-twice"
            )
        self.kinds = {TEXT: CATEGORY, LABEL: CATEGORY}
        self.options = options

    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Yields the lines of each file."""
        for label, path in self._labels:
            yield from _read_blocks(path, label, names)


def _read_blocks(path: Path, label: str, names: Sequence[str]) -> Iterator[Block]:
    import pyarrow

    lines = iter(read_lines(path))
    first = 1
    while chunk := list(itertools.islice(lines, _BLOCK_ROWS)):
        columns = {TEXT: chunk, LABEL: [label] * len(chunk)}
        arrays = {name: pyarrow.array(columns[name], pyarrow.string()) for name in names}
        yield Block(arrays, str(path), first)
        first += len(chunk)
