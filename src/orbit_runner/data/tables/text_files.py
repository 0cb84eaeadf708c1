"""Text files with one example per line, and a class for each file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.data.files import named_files
from orbit_runner.data.tables.columns import CATEGORY
from orbit_runner.data.tables.dataset import Block, TableDataset, TableOptions, TableReader
from orbit_runner.data.text.lines import read_lines
from orbit_runner.errors import DataError

TEXT, LABEL = "text", "label"
_NAME = "text_files"
_BLOCK_ROWS = 2**14


def load(*, data_dir: str, options: TableOptions) -> TableDataset:
    """Returns a table of text files, plain or gzip, whose lines are the column `text`.

    `options.files` has the files of each class, which is the column `label`. Raises `DataError` if
    a file is missing, or is not UTF-8.
    """
    try:
        labels = [
            (label, path)
            for label, names in options.files
            for path in named_files(_NAME, data_dir, names)
        ]
    except DataError as error:
        raise DataError(str(error), field="files", code=error.code) from None
    files = tuple(path for _, path in labels)
    twice = next((path for path in files if files.count(path) > 1), None)
    if twice is not None:
        raise DataError(f"{_NAME}: {twice} is listed twice", field="files", code="set-twice")

    def blocks(names: Sequence[str]) -> Iterator[Block]:
        for label, path in labels:
            yield from _read_blocks(path, label, names)

    return TableDataset(_NAME, {TEXT: CATEGORY, LABEL: CATEGORY}, blocks, files, options)


TEXT_FILES = TableReader(load)


def _read_blocks(path: Path, label: str, names: Sequence[str]) -> Iterator[Block]:
    import pyarrow

    lines = iter(read_lines(path))
    first = 1
    while chunk := list(itertools.islice(lines, _BLOCK_ROWS)):
        columns = {TEXT: chunk, LABEL: [label] * len(chunk)}
        arrays = {name: pyarrow.array(columns[name], pyarrow.string()) for name in names}
        yield Block(arrays, str(path), first)
        first += len(chunk)
