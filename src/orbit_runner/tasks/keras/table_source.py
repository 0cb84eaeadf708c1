"""The rows of a table as arrays: inputs, labels and weights. Does not import TensorFlow.

A `TableQuery` reads the rows; inputs are its features, and outputs its targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from orbit_runner.data.arrays import Gathered
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.build import CellError
from orbit_runner.data.tables.columns import (
    CATEGORY,
    NUMBER,
    TablePart,
    class_numbers,
    rows_text,
)
from orbit_runner.tasks.keras.config import SECTIONS, TABLE, KerasConfig
from orbit_runner.tasks.keras.examples import ArrayExamples, W, X, Y
from orbit_runner.tasks.keras.user_arrays import named_below
from orbit_runner.tasks.table_query import FEATURE, TARGET, TRAIN, WEIGHT, NamedColumn, TableQuery

# The columns of each array, by its path: the name of one, or several of numbers.
_Columns = Mapping[str, "str | tuple[str, ...]"]


def table_query(config: KerasConfig) -> TableQuery:
    """Returns what a config reads of its tables."""
    configured = config.inputs or ()
    named = (
        configured
        if isinstance(configured, Mapping)
        else dict(zip(configured, configured, strict=True))
    )
    inputs, outputs = _by_path(X, named), _by_path(Y, config.outputs)
    lists = [names for names in (*outputs.values(), *inputs.values()) if not isinstance(names, str)]
    numbers = {name for names in lists for name in names}
    columns = [
        NamedColumn(setting, name, NUMBER if role == WEIGHT or name in numbers else "", role)
        for setting, names, role in (
            ("outputs", _names(outputs), TARGET),
            ("weight_column", [config.weight_column] * bool(config.weight_column), WEIGHT),
            ("inputs", _names(inputs), FEATURE),
        )
        for name in names
    ]
    sections = {name: config.section(name) for name in SECTIONS}
    return TableQuery(
        sections={name: data for name, data in sections.items() if data and data.kind == TABLE},
        columns=columns,
        features="inputs",
        advice="list the columns in inputs, to read this one as texts",
        numbers="outputs: [{}]",
        split=config.row_parts,
        has_categories=False,
        declares_classes=True,
    )


def table_source(
    config: KerasConfig, section: str, classes: Mapping[str, tuple[str, ...]] | None = None
) -> ArrayExamples:
    """Returns the rows of a section as arrays. The table is read once per process.

    Raises `DataError` if the table is missing or damaged, has no such columns, or has values that
    the model cannot get. For `classes`, see `section_source`.
    """
    names = class_names(config) if classes is None else classes
    return _make_arrays(
        table_query(config).part(section),
        tuple(input_columns(config).items()),
        tuple(_by_path(Y, config.outputs).items()),
        config.weight_column,
        tuple(names.items()),
    )


def class_names(config: KerasConfig) -> dict[str, tuple[str, ...]]:
    """Returns the names of the classes in the training rows, by the path of the labels."""
    query = table_query(config)
    part = query.part(TRAIN)
    return {
        path: query.classes(name)
        for path, name in _by_path(Y, config.outputs).items()
        if isinstance(name, str) and part.column(name).kind == CATEGORY
    }


def input_columns(config: KerasConfig) -> _Columns:
    """Returns the columns of the inputs by the path of their array.

    Without names in the config, a single column is the input, columns of numbers are one array, and
    if there are others, too, each column is an input by its name.
    """
    if isinstance(config.inputs, Mapping):
        return _by_path(X, config.inputs)
    query = table_query(config)
    kinds = query.feature_kinds()
    names = config.inputs or [name for name in query.datasets(TRAIN)[0].kinds if name in kinds]
    if len(names) == 1:
        return {X: names[0]}
    if all(kinds[name] == NUMBER for name in names):
        return {X: tuple(names)}
    return {f"{X}.{name}": name for name in names}


def _by_path(top: str, setting: Any) -> _Columns:
    by_path = {top: setting}
    if isinstance(setting, Mapping):
        by_path = {f"{top}.{name}": names for name, names in setting.items()}
    return {path: n if isinstance(n, str) else tuple(n) for path, n in by_path.items()}


def _names(columns: _Columns) -> list[str]:
    lists = ([names] if isinstance(names, str) else names for names in columns.values())
    return [*dict.fromkeys(name for names in lists for name in names)]


@cache_source(maxsize=4)
def _make_arrays(
    part: TablePart,
    inputs: tuple[tuple[str, str | tuple[str, ...]], ...],
    outputs: tuple[tuple[str, str | tuple[str, ...]], ...],
    weight_column: str,
    classes: tuple[tuple[str, tuple[str, ...]], ...],
) -> ArrayExamples:
    names = dict(classes)
    arrays = {path: _array(part, columns, "inputs") for path, columns in inputs}
    for path, columns in outputs:
        if path in names:
            arrays[path] = class_numbers(part, str(columns), names[path])
        else:
            arrays[path] = _as_integers(_array(part, columns, "outputs"))
    if weight_column:
        arrays[W] = _array(part, weight_column, "weight_column")
    return ArrayExamples(
        part.name,
        named_below(arrays, (X, Y)),
        files=part.files,
        origins=part.origins,
        labels=names.get(Y),
        places=part.places,
    )


def _array(part: TablePart, columns: str | tuple[str, ...], setting: str) -> Any:
    """Returns texts, or numbers: float32 [n], or [n, k] for several columns."""
    if not isinstance(columns, str):
        return np.stack([_array(part, name, setting) for name in columns], axis=1)
    column = part.column(columns)
    missing = column.is_missing()
    if column.kind == CATEGORY:  # The last text is that of missing values.
        codes = np.where(missing, len(column.vocabulary), column.values)
        return Gathered(np.array((*column.vocabulary, ""), object), codes.astype(np.int32))
    if missing.any():
        where = rows_text(part, np.flatnonzero(missing))
        message = f"column {columns!r} has no value in {where}, expected a number"
        raise CellError(message, columns, setting=setting)
    return np.asarray(column.values)


def _as_integers(labels: np.ndarray) -> np.ndarray:
    """Returns one column of whole numbers as int32, and others as they are."""
    is_whole = labels.ndim == 1 and np.array_equal(labels, labels // 1)
    return labels.astype(np.int32) if is_whole and np.abs(labels).max(initial=0) < 2**24 else labels
