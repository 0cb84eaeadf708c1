"""The rows of a table as arrays: inputs, labels and weights. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from orbit_runner.data.arrays import TextArray
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.source import ArraySource
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.build import CellError
from orbit_runner.data.tables.columns import CATEGORY, DATE, INTEGER, KEY, TablePart
from orbit_runner.data.tables.columns import NUMBER as NUMBERS
from orbit_runner.data.tables.dataset import TableDataset, TableUse
from orbit_runner.data.tables.split import part_of_table
from orbit_runner.errors import DataError, nearest_name_hint, shorten
from orbit_runner.tasks.keras.config import (
    CLASS,
    NUMBER,
    SECTIONS,
    TEXT,
    Columns,
    KerasConfig,
    KerasDataConfig,
    columns_of,
)
from orbit_runner.tasks.tabular.sources import describe_columns, join_parts, load_columns

X, Y, W = "x", "y", "w"
# The names of the classes of outputs whose labels are texts, by the path of their array.
ClassNames: TypeAlias = Mapping[str, tuple[str, ...]]
_Array: TypeAlias = "np.ndarray | TextArray"
_READ_AS = {NUMBERS: NUMBERS, CATEGORY: CATEGORY, DATE: CATEGORY}
_KIND_OF_COLUMN = {NUMBER: NUMBERS, TEXT: CATEGORY, CLASS: CATEGORY}


def table_source(
    config: KerasConfig, section: str, classes: ClassNames | None = None
) -> ArraySource:
    """Returns the rows of a section as arrays. The table is read once per process.

    Raises `DataError` if the table is missing or damaged, has no such columns, or has values that
    the model cannot get. For `classes`, see `section_source`.
    """
    if classes is None:
        classes = class_names(config)
    return _make_arrays(
        load_part(config, section),
        tuple(_inputs(config, _training_dataset(config)).items()),
        tuple(_outputs(config).items()),
        config.weight_column,
        tuple((path, tuple(names)) for path, names in classes.items()),
    )


def class_names(config: KerasConfig) -> ClassNames:
    """Returns the names of the classes in the training rows, by the path of the labels."""
    part = load_part(config, SECTIONS[0])
    names = {}
    for path, columns in _outputs(config).items():
        if _is_class(part, columns):
            name = columns.names[0]
            # A file may declare its classes, of which the training rows may lack some.
            declared = _training_dataset(config).classes.get(name, ())
            names[path] = declared or tuple(filter(None, part.column(name).text_counts()))
    return names


def section_files(data: KerasDataConfig) -> list[DataFile]:
    """Returns descriptions of the files of a section, or of its columns if there are none."""
    rows = []
    for dataset in _datasets(data):
        if dataset.files:
            rows += describe_files(dataset.files, content_digest)
        else:
            kinds = tuple(sorted(_usable(dataset).items()))
            rows += describe_columns(load_columns(dataset, kinds))
    return rows


def load_part(config: KerasConfig, section: str) -> TablePart:
    """Returns the rows of a section, with the columns that the config uses."""
    data = config.section(section)
    assert data is not None
    part = config.part_of(section)
    split = config.row_split(section, _input_names(config)) if part else None
    parts = []
    for number, dataset in enumerate(_datasets(data, is_split=split is not None)):
        try:
            source = load_columns(dataset, tuple(_column_kinds(config, dataset).items()))
        except CellError as error:
            setting = error.setting or _setting_of(config, error.column)
            raise CellError(
                str(error), error.column, error.text, setting, code=error.code
            ) from error
        except DataError as error:
            if data.mixture and error.field == "columns":
                raise DataError(str(error), field=f"mixture[{number}]", code=error.code) from error
            raise
        parts.append(part_of_table(source, split, part))
    return join_parts(tuple(parts)) if data.mixture else parts[0]


def _datasets(data: KerasDataConfig, *, is_split: bool = False) -> list[TableDataset]:
    use = TableUse(is_split=is_split)
    return [section.format.of_section(section, section.options, use) for section in data.sources]


def _input_names(config: KerasConfig) -> list[str]:
    inputs = _inputs(config, _training_dataset(config)).values()
    return [name for columns in inputs for name in columns.names]


def _training_dataset(config: KerasConfig) -> TableDataset:
    return _datasets(config.train_data)[0]


def _outputs(config: KerasConfig) -> dict[str, Columns]:
    """Returns the columns of the labels by the path of their array."""
    columns = columns_of(config.outputs)
    if isinstance(columns, Columns):
        return {Y: columns}
    return {f"{Y}.{name}": item for name, item in columns.items()}


def _inputs(config: KerasConfig, dataset: TableDataset) -> dict[str, Columns]:
    """Returns the columns of the inputs by the path of their array.

    Without names in the config, a single column is the input, columns of numbers are one array, and
    if there are others, too, each column is an input by its name.
    """
    setting = config.inputs
    if isinstance(setting, Mapping):
        columns = columns_of(setting)
        if isinstance(columns, Columns):
            return {X: columns}
        return {f"{X}.{name}": item for name, item in columns.items()}
    kinds = _usable(dataset)
    if setting is None:
        used = {name for item in _outputs(config).values() for name in item.names}
        used |= {config.weight_column}
        if config.split is not None:
            used |= {config.split.column}
        names = [name for name in kinds if name not in used]
    else:
        names = [*setting]
    if not names:
        raise DataError(
            f"{dataset.name}: no columns are left for inputs", field="columns", code="bad-data"
        )
    if len(names) == 1:
        return {X: Columns((names[0],))}
    if all(kinds.get(name) == NUMBERS for name in names):
        return {X: Columns(tuple(names), NUMBER, is_list=True)}
    return {f"{X}.{name}": Columns((name,)) for name in names}


def _usable(dataset: TableDataset) -> dict[str, str]:
    """Returns how the columns can be read: numbers, and texts, also of dates."""
    return {name: _READ_AS[kind] for name, kind in dataset.kinds.items() if kind in _READ_AS}


def _column_kinds(config: KerasConfig, dataset: TableDataset) -> dict[str, str]:
    """Returns how each column that the config uses is read."""
    kinds: dict[str, str] = {}
    training = _training_dataset(config)
    for path, columns in (*_inputs(config, training).items(), *_outputs(config).items()):
        for name in columns.names:
            kind = _known_kind(dataset, name, path)
            if columns.kind or columns.is_list:
                kind = _KIND_OF_COLUMN[columns.kind or NUMBER]
            if kinds.get(name, kind) != kind:
                raise DataError(
                    f"{dataset.name}: column {name!r} is used as number and as text",
                    field="columns",
                    code="conflict",
                )
            kinds[name] = kind
    if config.weight_column:
        _known_kind(dataset, config.weight_column, W)
        kinds[config.weight_column] = NUMBERS
    if config.split is not None:
        if config.split.column:
            kinds[config.split.column] = CATEGORY
        for name in config.split.hash_of:
            kinds.setdefault(name, KEY)
    integers = dataset.integers
    return {n: INTEGER if k == NUMBERS and n in integers else k for n, k in kinds.items()}


def _setting_of(config: KerasConfig, name: str) -> str:
    """Returns the setting that a column is used for."""
    if name == config.weight_column:
        return "weight_column"
    outputs = _outputs(config).values()
    return "outputs" if any(name in columns.names for columns in outputs) else "inputs"


def _known_kind(dataset: TableDataset, name: str, path: str) -> str:
    kind = dataset.kinds.get(name)
    if kind in _READ_AS:
        return _READ_AS[kind]
    setting = {X: "inputs", Y: "outputs", W: "weight_column"}[path.partition(".")[0]]
    if kind is None:
        problem = f"unknown column {name!r}{nearest_name_hint(name, dataset.kinds)}"
    else:
        problem = f"column {name!r} has type {kind}, expected numbers, booleans or texts"
    listed = shorten(", ".join(dataset.kinds), 300)
    raise CellError(
        f"{problem}\ncolumns of the table: {listed}", name, setting=setting, code="unknown-column"
    )


def _is_class(part: TablePart, columns: Columns) -> bool:
    return part.source.columns[columns.names[0]].kind == CATEGORY and columns.kind != TEXT


@cache_source(maxsize=4)
def _make_arrays(
    part: TablePart,
    inputs: tuple[tuple[str, Columns], ...],
    outputs: tuple[tuple[str, Columns], ...],
    weight_column: str,
    classes: tuple[tuple[str, tuple[str, ...]], ...],
) -> ArraySource:
    names = dict(classes)
    tree: dict[str, _Array | dict[str, _Array]] = {}
    for path, columns in inputs:
        _put(tree, path, _input_array(part, columns, "inputs"))
    for path, columns in outputs:
        _put(tree, path, _label_array(part, columns, names.get(path)))
    if weight_column:
        tree[W] = _weights(part, weight_column)
    return ArraySource(
        part.name,
        tree,
        files=part.source.files,
        origins=part.origins,
        labels=names.get(Y),
        parts=tuple(part.source.parts),
        rows=part.rows,
        part_kind="FILE",
        unit="row",
        first=1,
    )


def _put(tree: dict[str, _Array | dict[str, _Array]], path: str, array: _Array) -> None:
    top, _, name = path.partition(".")
    if not name:
        tree[top] = array
        return
    arrays = tree.setdefault(top, {})
    assert isinstance(arrays, dict)
    arrays[name] = array


def _input_array(part: TablePart, columns: Columns, setting: str) -> _Array:
    column = part.column(columns.names[0])
    if column.kind == CATEGORY:
        # The last text is that of missing values, whose code is -1.
        codes = np.where(column.values < 0, len(column.vocabulary), column.values)
        return TextArray((*column.vocabulary, ""), codes.astype(np.int32))
    return _numbers(part, columns, setting)


def _label_array(part: TablePart, columns: Columns, classes: tuple[str, ...] | None) -> _Array:
    """Returns labels: int32 for classes and for whole numbers, float32 for other numbers."""
    if classes is not None:
        return _class_numbers(part, columns.names[0], classes)
    array = _input_array(part, columns, "outputs")
    if isinstance(array, TextArray) or columns.kind == NUMBER or columns.is_list:
        return array
    is_whole = all(
        np.array_equal(block, block // 1) and np.abs(block).max(initial=0) < 2**24
        for block in _blocks(part.source.columns[columns.names[0]].values)
    )
    return array.astype(np.int32) if is_whole else array


def _blocks(values: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(values), 2**16):
        yield values[start : start + 2**16]


def _numbers(part: TablePart, columns: Columns, setting: str) -> np.ndarray:
    """Returns columns of numbers, float32 [n], or [n, k] for a list.

    `setting` names the columns, for messages.
    """
    for name in columns.names:
        column = part.column(name)
        missing = column.is_missing()
        if missing.any():
            rows = f"{int(missing.sum()):,} of {part.size:,} rows"
            raise CellError(
                f"column {name!r} has no value in {rows}, such as "
                f"{part.row_location(int(missing.argmax()))}\n"
                "fill it in the file, or leave the column out; the task `tabular` does so itself",
                name,
                setting=setting,
            )
    if not columns.is_list:
        return np.asarray(part.column(columns.names[0]).values)
    matrix = np.empty((part.size, len(columns.names)), np.float32)
    for place, name in enumerate(columns.names):
        matrix[:, place] = part.column(name).values
    return matrix


def _class_numbers(part: TablePart, name: str, classes: tuple[str, ...]) -> np.ndarray:
    """Returns the class of each row, int32 [n]."""
    column = part.column(name)
    codes = {text: code for code, text in enumerate(classes)}
    # The last entry is for missing values.
    table = np.array([*(codes.get(text, -1) for text in column.vocabulary), -1], np.int32)
    numbers = table[column.values]
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        row = int(unknown[0])
        text = column.text(row)
        got = f"the class {text!r}, which no training row has" if text else "no value"
        raise CellError(
            f"column {name!r} has {got}, in {part.row_location(row)}"
            f"{nearest_name_hint(text, classes)}\nclasses: {shorten(', '.join(classes), 200)}",
            name,
            setting="outputs",
        )
    return numbers


def _weights(part: TablePart, name: str) -> np.ndarray:
    weights = _numbers(part, Columns((name,)), "weight_column")
    if (weights < 0).any():
        row = int((weights < 0).argmax())
        got = f"the weight {weights[row]:g} in {part.row_location(row)}"
        raise CellError(
            f"column {name!r} has {got}, expected at least 0",
            name,
            setting="weight_column",
        )
    return weights
