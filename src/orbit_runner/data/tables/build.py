"""Reads the columns of a table: converts blocks of rows, and caches what took long to read.

Each column has its own file in the cache, so that adding a feature does not read the others again.
A cached column is mapped into memory, and its pages are read when they are used.
"""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.disk_cache import KEPT_SECONDS, CacheEntry, Values, file_status
from orbit_runner.data.places import Places
from orbit_runner.data.tables.arrow import is_text, leading_zeros
from orbit_runner.data.tables.cell_texts import (
    are_dates,
    is_missing,
    normal_text,
    parse_date,
    parse_number,
    text_of,
)
from orbit_runner.data.tables.columns import (
    CATEGORY,
    DATE,
    MISSING,
    MISSING_DATE,
    NUMBER,
    TEXT,
    Column,
    TablePart,
    check_names,
    sort_texts,
)
from orbit_runner.data.tables.dataset import Block, TableDataset
from orbit_runner.data.tables.hashing import hash_texts
from orbit_runner.errors import DataError, shorten
from orbit_runner.utils.log import Progress

if TYPE_CHECKING:
    import pyarrow


_THREADS = 4
Parts = list[tuple[str, int]]
_CachedColumn = tuple[Column, Parts]


def read_table(dataset: TableDataset, kinds: Mapping[str, str]) -> TablePart:
    """Returns the columns of a table, from the cache if the files have not changed.

    Args:
        dataset: The table.
        kinds: The kind of each column: `number`, `integer`, `category`, `date` or `key`.

    Raises:
        DataError: A column is missing, or a value does not fit the kind of its column.
    """
    check_names(dataset.name, list(kinds), list(dataset.kinds))
    options = dataclasses.asdict(dataset.options)
    files = [file_status(path) for path in dataset.files]
    stored = {
        name: CacheEntry("tables", [dataset.name, options, name, kind], files)
        for name, kind in kinds.items()
        if files
    }
    with ThreadPoolExecutor(_THREADS) as pool:  # Checksums take most of the time.
        hits = zip(stored, pool.map(_read, stored.values()), strict=True)
    entries = {name: hit for name, hit in hits if hit}
    lacking = {name: kind for name, kind in kinds.items() if name not in entries}
    if lacking:
        began = time.monotonic()
        columns, parts = build_columns(dataset, lacking)
        entries |= {name: (column, parts) for name, column in columns.items()}
        if files and time.monotonic() - began > KEPT_SECONDS:
            for name, column in columns.items():
                stored[name].write(_values(column, parts))
                # The mapped file takes the place of the array in memory.
                entries[name] = _read(stored[name]) or entries[name]
    parts = next(iter(entries.values()))[1]
    if any(other != parts for _, other in entries.values()):
        raise DataError(
            f"{dataset.name}: the files changed while they were read", code="data-changed"
        )
    return TablePart(
        name=dataset.name,
        columns={name: entries[name][0] for name in kinds},
        places=Places(tuple(parts)),
        files=dataset.files,
    )


def _read(entry: CacheEntry) -> _CachedColumn | None:
    values = entry.read()
    if values is None:
        return None
    parts = [(str(name), int(rows)) for name, rows in values.pop("parts")]
    return Column(**values | {"vocabulary": tuple(values["vocabulary"])}), parts


def _values(column: Column, parts: Parts) -> Values:
    return {**vars(column), "parts": parts}


class CellError(DataError):
    """A cell that does not fit the kind of its column.

    Attributes:
        column: The name of the column.
        text: The text of the cell; "" if it is a number.
        setting: The setting of the column, without `task`; "" if it is not known.
    """

    code = "bad-record"

    def __init__(
        self, message: str, column: str, text: str = "", setting: str = "", *, code: str = ""
    ) -> None:
        super().__init__(message, field="columns", code=code)
        self.column = column
        self.text = text
        self.setting = setting


def build_columns(
    dataset: TableDataset, kinds: Mapping[str, str]
) -> tuple[dict[str, Column], Parts]:
    """Reads columns, and returns them by name, and the name and rows of each file.

    `kinds` has the kind of each column. Only these columns and one block of rows are in memory.
    Logs progress if this takes long. Raises `DataError` with file, row and column if a value does
    not fit its kind.
    """
    missing = frozenset(text.strip() for text in dataset.options.missing_values)
    builders = {name: _BUILDERS[kind](name, missing) for name, kind in kinds.items()}
    for name, builder in builders.items():
        builder.declared = tuple(map(builder.form, dataset.classes.get(name, ())))
    progress = Progress(f"reading {dataset.name}")
    parts = Parts()
    total = 0
    for block in dataset.blocks(list(kinds)):
        columns = block.columns
        rows = len(next(iter(columns.values())))
        for name, builder in builders.items():
            builder.add(columns[name], block)
        if block.first == 1:
            parts.append((block.file, 0))
        parts[-1] = (block.file, parts[-1][1] + rows)
        total += rows
        progress(f"{total:,} rows")
    if not total:
        where = dataset.files[0] if dataset.files else dataset.name
        raise DataError(f"{where}: there are no rows", field="input_path", code="empty-data")
    return {name: builder.column() for name, builder in builders.items()}, parts


class _Builder(abc.ABC):
    """Collects the values of a column. The texts in `missing` are missing values.

    `declared` are the texts whose order the files declare.
    """

    declared: tuple[str, ...] = ()

    def __init__(self, name: str, missing: frozenset[str] = frozenset()) -> None:
        self.name = name
        self.missing = missing
        self.blocks: list[np.ndarray] = []

    @abc.abstractmethod
    def add(self, array: pyarrow.Array, block: Block) -> None:
        """Adds an Arrow array."""

    @abc.abstractmethod
    def column(self) -> Column:
        """Returns the column, and releases the blocks."""

    def form(self, text: str | None) -> str:
        """Returns the form of a text that is compared and hashed, "" if it is missing."""
        return "" if not text or is_missing(text, self.missing) else normal_text(text)

    def values(self) -> np.ndarray:
        """Returns all values in one array, and releases the blocks."""
        blocks, self.blocks = self.blocks, []
        return np.concatenate(blocks)


class _Numbers(_Builder):
    def __init__(self, name: str, missing: frozenset[str] = frozenset()) -> None:
        super().__init__(name, missing)
        self._missing_numbers = [
            number for number in map(_number_or_nan, missing) if number == number
        ]

    def add(self, array: pyarrow.Array, block: Block) -> None:
        exact = self._to_numbers(array, block)
        if self._missing_numbers:
            exact = np.where(np.isin(exact, self._missing_numbers), np.nan, exact)
        with np.errstate(over="ignore"):
            values = exact.astype(np.float32)
        for row in np.flatnonzero(np.isinf(values)).tolist():
            raise _mismatch(block, row, self.name, f"{exact[row]:g}", "a number of 32 bits")
        self.blocks.append(values)

    def column(self) -> Column:
        return Column(self.name, NUMBER, self.values())

    def _to_numbers(self, array: pyarrow.Array, block: Block) -> np.ndarray:
        """Returns an Arrow array as float64 [n], NaN for missing values."""
        import pyarrow

        array = decode(array)
        if is_text(array.type):
            array = to_texts(array)
            try:
                numbers = array.cast(pyarrow.float64())
            except pyarrow.ArrowInvalid:
                texts = array.to_pylist()
                return np.array([self._parse(text, row, block) for row, text in enumerate(texts)])
        else:
            numbers = array.cast(pyarrow.float64(), safe=False)
        return numbers.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)

    def _parse(self, text: str | None, row: int, block: Block) -> float:
        if not text or is_missing(text, self.missing):
            return np.nan
        try:
            return parse_number(text)
        except ValueError:
            got = repr(shorten(text, 80))
            raise _mismatch(block, row, self.name, got, "a number", text) from None


class _Integers(_Numbers):
    """Numbers whose kind was inferred from integers, which are not codes with leading zeros."""

    def _to_numbers(self, array: pyarrow.Array, block: Block) -> np.ndarray:
        rows = np.flatnonzero(leading_zeros(array))
        if len(rows):
            row = int(rows[0])
            text = array[row].as_py()
            raise CellError(
                f"{block.file}, row {block.first + row}: column {self.name!r}: got {text!r}, which "
                "has a leading zero as codes have, and the rows before have numbers",
                self.name,
            )
        return super()._to_numbers(array, block)


class _Categories(_Builder):
    def __init__(self, name: str, missing: frozenset[str] = frozenset()) -> None:
        super().__init__(name, missing)
        self._codes: dict[str, int] = {}

    def add(self, array: pyarrow.Array, block: Block) -> None:
        encoded = to_texts(array).dictionary_encode()
        codes = [self._code_of(text) for text in encoded.dictionary.to_pylist()]
        # The last entry is for missing values, whose index is -1.
        table = np.array([*codes, MISSING], np.int32)
        indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self.blocks.append(table[indices])

    def column(self) -> Column:
        # Texts that the files do not declare follow.
        declared = dict.fromkeys(self.declared)
        vocabulary = [text for text in declared if text in self._codes]
        vocabulary += sort_texts([text for text in self._codes if text not in declared])
        table = np.full(len(vocabulary) + 1, MISSING, np.int32)
        table[[self._codes[text] for text in vocabulary]] = np.arange(len(vocabulary))
        return Column(self.name, CATEGORY, table[self.values()], tuple(vocabulary))

    def _code_of(self, text: str | None) -> int:
        form = self.form(text)
        return self._codes.setdefault(form, len(self._codes)) if form else MISSING


class _Texts(_Categories):
    """Texts to read rather than to compare: sentences, and the paths of files."""

    def form(self, text: str | None) -> str:
        """Returns the text itself."""
        return "" if not text or text in self.missing else text


class _Dates(_Builder):
    def __init__(self, name: str, missing: frozenset[str] = frozenset()) -> None:
        super().__init__(name, missing)
        self._missing_dates = [parse_date(text) for text in missing if are_dates([text])]

    def add(self, array: pyarrow.Array, block: Block) -> None:
        seconds = self._to_seconds(array, block)
        self.blocks.append(np.where(np.isin(seconds, self._missing_dates), MISSING_DATE, seconds))

    def column(self) -> Column:
        return Column(self.name, DATE, self.values())

    def _to_seconds(self, array: pyarrow.Array, block: Block) -> np.ndarray:
        """Returns an Arrow array as seconds since 1970, int64 [n]."""
        import pyarrow

        array = decode(array)
        if is_text(array.type):
            array = to_texts(array)
            try:
                dates = array.cast(pyarrow.timestamp("s")).cast(pyarrow.int64())
            except pyarrow.ArrowInvalid:
                texts = array.to_pylist()
                values = [self._parse(text, row, block) for row, text in enumerate(texts)]
                return np.array(values, np.int64)
            return dates.fill_null(MISSING_DATE).to_numpy(zero_copy_only=False)
        # Rounds down, also before 1970. Times with a zone are stored as those of UTC.
        exact = array.cast(pyarrow.timestamp("us"), safe=False).cast(pyarrow.int64())
        missing = exact.is_null().to_numpy(zero_copy_only=False)
        values = exact.fill_null(0).to_numpy(zero_copy_only=False) // 1_000_000
        return np.where(missing, MISSING_DATE, values)

    def _parse(self, text: str | None, row: int, block: Block) -> int:
        if not text or is_missing(text, self.missing):
            return MISSING_DATE
        try:
            return parse_date(text)
        except ValueError:
            got = repr(shorten(text, 80))
            expected = "a date such as 2024-01-31 or 2024-01-31T10:30"
            raise _mismatch(block, row, self.name, got, expected, text) from None


class _Keys(_Builder):
    def add(self, array: pyarrow.Array, block: Block) -> None:
        self.blocks.append(hash_texts([*map(self.form, to_texts(array).to_pylist())]))

    def column(self) -> Column:
        return Column(self.name, "key", self.values())


_BUILDERS: dict[str, type[_Builder]] = {
    "number": _Numbers,
    "category": _Categories,
    TEXT: _Texts,
    "date": _Dates,
    "key": _Keys,
    "integer": _Integers,
}


def to_texts(array: pyarrow.Array) -> pyarrow.Array:
    """Returns an Arrow array as texts without spaces at both ends. NaN is a missing value."""
    import pyarrow
    from pyarrow import compute

    array = decode(array)
    texts = array.cast(pyarrow.string())
    if pyarrow.types.is_floating(array.type):
        # Arrow writes 1e-05 as 0.00001, and other programs do not.
        encoded = texts.dictionary_encode()
        forms = [text_of(float(text)) for text in encoded.dictionary.to_pylist()]
        return pyarrow.array(forms, pyarrow.string()).take(encoded.indices)
    # Inner spaces are kept, because they may distinguish two categories.
    return compute.utf8_trim_whitespace(texts)


def decode(array: pyarrow.Array) -> pyarrow.Array:
    """Returns an Arrow array without a dictionary."""
    import pyarrow

    is_encoded = pyarrow.types.is_dictionary(array.type)
    return array.cast(array.type.value_type) if is_encoded else array


def _number_or_nan(text: str) -> float:
    try:
        return parse_number(text)
    except ValueError:
        return np.nan


def _mismatch(
    block: Block, row: int, name: str, got: str, expected: str, text: str = ""
) -> CellError:
    """Returns the error of a cell that does not fit the kind of its column."""
    place = f"{block.file}, row {block.first + row}: column {name!r}"
    return CellError(f"{place}: got {got}, expected {expected}", name, text)
