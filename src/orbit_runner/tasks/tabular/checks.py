"""Checks of tables before a run, which name column, file and row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from orbit_runner.data.tables.columns import CATEGORY, KEY, NUMBER, Column
from orbit_runner.data.tables.reader import TableReader
from orbit_runner.data.tables.summary import (
    EqualRows,
    TablePart,
    TableSummary,
    leaked_rows,
    row_hashes,
    summarize,
)
from orbit_runner.errors import DataError, nearest_name_hint
from orbit_runner.tasks.imbalance.classes import imbalance_problems
from orbit_runner.tasks.tabular.config import (
    CLASSIFICATION,
    REGRESSION,
    SECTIONS,
    TabularConfig,
)
from orbit_runner.tasks.tabular.sources import (
    feature_kinds,
    load_part,
    load_reader,
    named_columns,
    target_classes,
)

Problems = Iterator[tuple[str, str]]
# A target with more classes probably consists of numbers.
_MAX_CLASSES = 10_000
# If nearly all texts of a column differ, it is an ID or free text.
_MAX_TEXTS = 1000


def table_problems(config: TabularConfig) -> Problems:
    """Yields (field, message) for files, columns and values that a run cannot use."""
    parts: dict[str, TablePart] = {}
    found = [*_name_problems(config)]
    if not found:
        for section in SECTIONS:
            try:
                parts[section] = load_part(config, section)
            except DataError as error:
                found.append((setting_of_error(section, error), str(error)))
    yield from found
    if not found:
        yield from _value_problems(config, parts)


def setting_of_error(section: str, error: DataError) -> str:
    """Returns the setting, without `task`, that an error of a section is about."""
    return "features" if error.field == "columns" else f"{section}.{error.field}"


def _name_problems(config: TabularConfig) -> Problems:
    """Yields columns that a table does not have, or whose type cannot be used."""
    checked: list[TableReader] = []
    for section in SECTIONS:
        try:
            reader = load_reader(config, section)
        except DataError as error:
            yield setting_of_error(section, error), str(error)
            return
        if reader in checked:  # Both sections usually read the same table.
            continue
        checked.append(reader)
        named = [*named_columns(config, section)]
        for path, name, _ in named:
            if problem := _name_problem(name, reader.kinds):
                yield path, f"{problem}\ncolumns of {section}: {', '.join(reader.kinds)}"
        inferred = set(feature_kinds(config)) - {name for _, name, _ in named}
        for name in sorted(inferred - set(reader.kinds)):
            yield f"{section}.source", f"has no column {name!r}, which train_data has"
    if not feature_kinds(config):
        yield "features", "no columns are left for features"


def _name_problem(name: str, kinds: Mapping[str, str]) -> str:
    if name not in kinds:
        return f"unknown column {name!r}{nearest_name_hint(name, kinds)}"
    if kinds[name] not in (NUMBER, CATEGORY):
        return f"column {name!r} has type {kinds[name]}, expected numbers, booleans or texts"
    return ""


def _value_problems(config: TabularConfig, parts: dict[str, TablePart]) -> Problems:
    for index, target in enumerate(config.targets):
        path = f"targets[{index}].column"
        columns = {name: part.column(target.column) for name, part in parts.items()}
        for section, column in columns.items():
            if problem := _missing_problem(column, parts[section]):
                yield path, problem
        if target.type == CLASSIFICATION:
            yield from _class_problems(path, target.column, columns, parts)
    yield from _weight_problems(config, parts)
    train = parts["train_data"]
    yield from imbalance_problems(config, train.origins, lambda: target_classes(config))
    yield from _feature_problems(config, parts["train_data"])


def _missing_problem(column: Column, part: TablePart) -> str:
    rows = np.flatnonzero(column.is_missing())
    if not len(rows):
        return ""
    return (
        f"column {column.name!r} has no value in {part.row_location(int(rows[0]))}"
        f"{_other_rows(rows)}\n"
        "a target needs a value in each row: fill it in, or remove the rows"
    )


def _class_problems(
    path: str, name: str, columns: dict[str, Column], parts: dict[str, TablePart]
) -> Problems:
    train, validation = (columns[section] for section in SECTIONS)
    known = set(train.text_counts()) - {""}
    if len(known) > _MAX_CLASSES:
        yield (
            path,
            f"column {name!r} has {len(known):,} classes\nfor numbers, set type: {REGRESSION}",
        )
    elif len(known) < 2:
        yield path, f"column {name!r} has only the class {', '.join(known)!r} in training"
    new = np.array([text not in known for text in (*validation.vocabulary, "")])
    rows = np.flatnonzero(new[validation.values] & ~validation.is_missing())
    if len(rows):
        got = validation.text(int(rows[0]))
        where = parts["validation_data"].row_location(int(rows[0]))
        yield (
            path,
            f"column {name!r} has the class {got!r} in {where}{_other_rows(rows)}, which no "
            f"training row has{nearest_name_hint(got, known)}",
        )


def _weight_problems(config: TabularConfig, parts: dict[str, TablePart]) -> Problems:
    if not config.weight_column:
        return
    for section, part in parts.items():
        values = part.column(config.weight_column).values
        rows = np.flatnonzero(~(values >= 0))
        if len(rows):
            yield (
                "weight_column",
                f"column {config.weight_column!r} has {values[rows[0]]:g} in "
                f"{part.row_location(int(rows[0]))}{_other_rows(rows)}, expected 0 or more",
            )
        elif not values.any():
            yield "weight_column", f"all weights of {section} are 0"


def _feature_problems(config: TabularConfig, part: TablePart) -> Problems:
    listed = (*config.features.numeric, *config.features.categorical)
    for name, kind in feature_kinds(config).items():
        column = part.column(name)
        if column.is_missing().all():
            yield "features", f"column {name!r} has no values in training"
        elif kind == CATEGORY and name not in listed:
            texts = len(column.text_counts())
            if texts > max(_MAX_TEXTS, part.size // 2):
                yield (
                    "features",
                    f"column {name!r} has {texts:,} different texts in {part.size:,} rows, as an "
                    "ID has\nlist the columns to use in features.numeric, categorical and text",
                )


def _other_rows(rows: Sequence[int] | np.ndarray) -> str:
    more = len(rows) - 1
    return f" and {more:,} other row{'s' if more > 1 else ''}" if more else ""


def equal_rows(config: TabularConfig) -> EqualRows:
    """Returns the validation rows whose features are those of a training row."""
    train, validation = (load_part(config, section) for section in SECTIONS)
    names = tuple(feature_kinds(config))
    return leaked_rows(train, validation, row_hashes(train, names), row_hashes(validation, names))


def summarize_table(config: TabularConfig) -> TableSummary:
    """Returns a summary of both sections. Raises `DataError` if one cannot be read."""
    features = feature_kinds(config)
    roles = dict.fromkeys(features, "feature")
    for path, name, kind in named_columns(config, "train_data"):
        if kind != KEY:
            roles[name] = _role(path)
    parts = {section: load_part(config, section) for section in SECTIONS}
    return summarize(parts, roles, tuple(features))


def _role(path: str) -> str:
    kinds = {"targets": "target", "weight_column": "weight", "split": "split"}
    return next((role for start, role in kinds.items() if path.startswith(start)), "feature")
