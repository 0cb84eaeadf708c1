"""Checks of tables before a run, which name column, file and row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from orbit_runner.config.errors import Problem
from orbit_runner.data.shared_examples import SharedExamples, compare_keys
from orbit_runner.data.tables.arrow_types import is_date_or_time
from orbit_runner.data.tables.build import CellError
from orbit_runner.data.tables.cell_texts import are_dates, odd_among_numbers
from orbit_runner.data.tables.columns import (
    CATEGORY,
    DATE,
    KEY,
    NUMBER,
    Column,
    TablePart,
)
from orbit_runner.data.tables.dataset import TableDataset
from orbit_runner.data.tables.hashing import hash_rows
from orbit_runner.data.tables.summary import TableSummary, summarize
from orbit_runner.errors import DataError, format_count, nearest_name_hint, shorten
from orbit_runner.tasks.imbalance.classes import imbalance_problems
from orbit_runner.tasks.shared_config import SECTIONS
from orbit_runner.tasks.tabular.config import CLASSIFICATION, REGRESSION, TabularConfig
from orbit_runner.tasks.tabular.sources import (
    feature_kinds,
    load_datasets,
    load_part,
    named_columns,
    target_classes,
)

Problems = Iterator[Problem]
# If nearly all texts of a column differ, it is an ID or free text.
_MAX_TEXTS = 1000
_MOST_CHARACTERS = 500
_MOST_COMPARED_ROWS = 1_000_000


def table_problems(config: TabularConfig) -> Problems:
    """Yields (field, message) for files, columns and values that a run cannot use."""
    parts: dict[str, TablePart] = {}
    problems = [*_name_problems(config)]
    if not problems:
        for section in SECTIONS:
            try:
                parts[section] = load_part(config, section)
            except DataError as error:
                path = setting_of_error(section, error)
                problems.append(Problem(path, str(error), code=error.code))
    yield from problems
    if not problems:
        yield from _value_problems(config, parts)


def setting_of_error(section: str, error: DataError) -> str:
    """Returns the setting, without `task`, that an error of a section is about."""
    if isinstance(error, CellError) and error.setting:
        return error.setting
    return "features" if error.field == "columns" else f"{section}.{error.field}"


def _name_problems(config: TabularConfig) -> Problems:
    """Yields columns that a table does not have, or whose type cannot be used."""
    checked: list[TableDataset] = []
    for section in SECTIONS:
        try:
            dataset = load_datasets(config, section)[0]
        except DataError as error:
            yield Problem(setting_of_error(section, error), str(error), code=error.code)
            return
        if dataset in checked:  # Both sections usually read the same table.
            continue
        checked.append(dataset)
        named = [*named_columns(config, section)]
        for path, name, kind in named:
            if problem := _name_problem(name, kind, dataset.kinds):
                message = f"{problem}\ncolumns of {section}: {', '.join(dataset.kinds)}"
                yield Problem(path, message, code="unknown-column")
        inferred = set(feature_kinds(config)) - {name for _, name, _ in named}
        for name in sorted(inferred - set(dataset.kinds)):
            message = f"has no column {name!r}, which train_data has"
            yield Problem(f"{section}.source", message, code="bad-data")
        for name in config.features.exclude if section == "train_data" else ():
            if name not in dataset.kinds:
                hint = nearest_name_hint(name, dataset.kinds)
                yield Problem("features.exclude", f"unknown column {name!r}{hint}", code="bad-data")
    if not feature_kinds(config):
        yield Problem("features", "no columns are left for features", code="empty-data")


def _name_problem(name: str, kind: str, kinds: Mapping[str, str]) -> str:
    if name not in kinds:
        return f"unknown column {name!r}{nearest_name_hint(name, kinds)}"
    # Dates and times have texts, and texts may be dates.
    has_texts = kinds[name] == CATEGORY or is_date_or_time(kinds[name])
    fits = {NUMBER: kinds[name] in (NUMBER, CATEGORY), DATE: kinds[name] in (DATE, CATEGORY)}
    if kind == DATE and not fits[DATE]:
        return f"column {name!r} has type {kinds[name]}, expected dates"
    if not fits.get(kind, kinds[name] == NUMBER or has_texts):
        return f"column {name!r} has type {kinds[name]}, expected numbers, booleans or texts"
    return ""


def _value_problems(config: TabularConfig, parts: dict[str, TablePart]) -> Problems:
    for index, target in enumerate(config.targets):
        path = f"targets[{index}].column"
        columns = {name: part.column(target.column) for name, part in parts.items()}
        for section, column in columns.items():
            if problem := _missing_problem(column, parts[section]):
                yield Problem(path, problem, code="bad-data")
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
        f"column {column.name!r} has no value in {part.location(int(rows[0]))}"
        f"{_other_rows(rows)}\n"
        "a target needs a value in each row: fill it in, or remove the rows"
    )


def _class_problems(
    path: str, name: str, columns: dict[str, Column], parts: dict[str, TablePart]
) -> Problems:
    train, validation = (columns[section] for section in SECTIONS)
    known = set(train.text_counts()) - {""}
    if len(known) < 2:
        message = f"column {name!r} has only the class {', '.join(known)!r} in training"
        yield Problem(path, message, code="bad-data")
    new = np.array([text not in known for text in (*validation.vocabulary, "")])
    rows = np.flatnonzero(new[validation.values] & ~validation.is_missing())
    if len(rows):
        got = validation.text(int(rows[0]))
        where = parts["validation_data"].location(int(rows[0]))
        advice = nearest_name_hint(got, known)
        if odd_among_numbers(dict.fromkeys(known, 1)) == ():
            advice = f"\nfor numbers, write targets: [{{column: {name}, type: {REGRESSION}}}]"
        message = (
            f"column {name!r} has the class {got!r} in {where}{_other_rows(rows)}, which no "
            f"training row has{advice}"
        )
        yield Problem(path, message, code="unknown-class")


def _weight_problems(config: TabularConfig, parts: dict[str, TablePart]) -> Problems:
    for section, part in parts.items() if config.weight_column else ():
        values = part.column(config.weight_column).values
        rows = np.flatnonzero(~(values >= 0))
        if len(rows):
            message = (
                f"column {config.weight_column!r} has {values[rows[0]]:g} in "
                f"{part.location(int(rows[0]))}{_other_rows(rows)}, expected 0 or more"
            )
            yield Problem("weight_column", message, code="bad-record")
        elif not values.any():
            yield Problem("weight_column", f"all weights of {section} are 0", code="bad-data")


def _feature_problems(config: TabularConfig, part: TablePart) -> Problems:
    for name, kind in feature_kinds(config).items():
        problem = ""
        if part.column(name).is_missing().all():
            problem = f"column {name!r} has no values in training"
        elif kind == CATEGORY and name not in config.features.categorical:
            problem = _category_problem(part, name)
        if problem:
            yield Problem("features", problem, code="bad-data")


def _category_problem(part: TablePart, name: str) -> str:
    """Returns why the texts of a column are probably no categories, "" if they may be."""
    source = part.source
    column = source.columns[name]
    counts = column.text_counts()
    odd = odd_among_numbers(counts)
    has_dates = are_dates(text for text in counts if text)
    if has_dates or odd is not None:
        row = _row_of(column, (odd or ())[:1] or column.vocabulary)
        place = source.places.text(row)
        return (
            f"{place}: column {name!r}: got {shorten(column.text(row), 80)!r} "
            f"in a column of texts, most of which are {'dates' if has_dates else 'numbers'}\n"
            "list it in missing_values of both sections, or the column in features.exclude, or in "
            "features.numeric, date or categorical with all other features"
        )
    texts, rows = len(part.column(name).text_counts()), part.size
    if texts <= max(_MAX_TEXTS, rows // 2):
        return ""
    return (
        f"column {name!r} has {texts:,} different texts in {rows:,} rows, as an ID has\n"
        "list it in features.exclude"
    )


def _row_of(column: Column, texts: Sequence[str]) -> int:
    """Returns the first row with one of some texts."""
    chosen = {*texts}
    is_chosen = np.array([*(text in chosen for text in column.vocabulary), False])
    return int(is_chosen[column.values].argmax())


def _other_rows(rows: Sequence[int] | np.ndarray) -> str:
    more = len(rows) - 1
    return f" and {format_count(more, 'other row')}" if more else ""


def left_out(config: TabularConfig) -> list[str]:
    """Returns the columns of the tables that are not used, one line each."""
    return [*dict.fromkeys(x for section in SECTIONS for x in _unused_columns(config, section))]


def _unused_columns(config: TabularConfig, section: str) -> Iterator[str]:
    used = {name for _, name, _ in named_columns(config, section)} | {*feature_kinds(config)}
    unused: dict[str, str] = {}
    for dataset in load_datasets(config, section):
        unused |= {
            name: name if kind in (NUMBER, CATEGORY, DATE) else f"{name} ({kind})"
            for name, kind in dataset.kinds.items()
            if name not in used
        }
    if unused:
        yield f"columns that are not used: {shorten(', '.join(unused.values()), _MOST_CHARACTERS)}"


def shared_rows(
    config: TabularConfig, excluded_rows: Callable[[], np.ndarray | None]
) -> SharedExamples | None:
    """Returns the validation rows whose features are those of a training row, or None.

    The comparison of a large table would delay the start; only the same rows are found there.
    `excluded_rows` returns the indices of the training rows that are left out, or None.
    """
    parts = [load_part(config, section) for section in SECTIONS]
    train, validation = parts
    if train.size + validation.size <= _MOST_COMPARED_ROWS:
        names = [*feature_kinds(config)]
        keys = [hash_rows(part.column(name) for name in names) for part in parts]
    elif train.source is validation.source:
        keys = [part.places.all_rows() for part in parts]
    else:
        return None
    excluded = excluded_rows()
    if excluded is not None:
        keys[0] = np.delete(keys[0], excluded)
        places = (lambda row: "", validation.location)
    else:
        places = (train.location, validation.location)
    advice = "" if config.split else "set task.split to evaluate on other rows"
    return compare_keys(keys[0], keys[1], "rows", places, advice, by_features=True)


def summarize_table(config: TabularConfig) -> TableSummary:
    """Returns a summary of both sections. Raises `DataError` if one cannot be read."""
    roles = dict.fromkeys(feature_kinds(config), "feature")
    for path, name, kind in named_columns(config, "train_data"):
        if kind != KEY:
            roles[name] = _role(path)
    parts = {section: load_part(config, section) for section in SECTIONS}
    return dataclasses.replace(summarize(parts, roles), left_out=left_out(config))


def _role(path: str) -> str:
    kinds = {"targets": "target", "weight_column": "weight", "split": "split"}
    return next((role for start, role in kinds.items() if path.startswith(start)), "feature")
