"""Checks of tables before a run, which name column, file and row, and what inspections show."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from orbit_runner.config.errors import Problem
from orbit_runner.data.shared_examples import SharedExamples, compare_keys
from orbit_runner.data.tables.arrow import is_date_or_time
from orbit_runner.data.tables.cell_texts import are_dates, odd_among_numbers
from orbit_runner.data.tables.columns import (
    CATEGORY,
    DATE,
    KEY,
    NUMBER,
    TablePart,
    class_numbers,
    rows_text,
)
from orbit_runner.data.tables.dataset import TableDataset
from orbit_runner.data.tables.hashing import hash_rows
from orbit_runner.data.tables.summary import TableSummary, summarize
from orbit_runner.errors import DataError, nearest_name_hint, shorten
from orbit_runner.tasks.table_query import (
    FEATURE,
    MISSING_HINT,
    TARGET,
    TRAIN,
    VALIDATION,
    WEIGHT,
    NamedColumn,
    TableQuery,
)

Problems = Iterator[Problem]
# If nearly all texts of a column differ, it is an ID or free text.
_MAX_TEXTS = 1000
_MOST_CHARACTERS = 500
_MOST_COMPARED_ROWS = 1_000_000


def table_problems(query: TableQuery) -> Problems:
    """Yields (field, message) for files, columns and values that a run cannot use."""
    parts: dict[str, TablePart] = {}
    problems = [*_name_problems(query)]
    if not problems:
        for section in query.sections:
            try:
                parts[section] = query.part(section)
            except DataError as error:
                path = query.setting_of_error(section, error)
                problems.append(Problem(path, str(error), code=error.code))
    yield from problems
    if not problems:
        yield from _value_problems(query, parts)


def _name_problems(query: TableQuery) -> Problems:
    """Yields columns that a table does not have, or whose type cannot be used."""
    checked: list[TableDataset] = []
    for section in query.sections:
        try:
            dataset = query.datasets(section)[0]
        except DataError as error:
            yield Problem(query.setting_of_error(section, error), str(error), code=error.code)
            return
        if dataset in checked:  # Both sections usually read the same table.
            continue
        checked.append(dataset)
        named = query.named(section)
        for column in named:
            if problem := _name_problem(column, dataset.kinds):
                message = f"{problem}\ncolumns of {section}: {', '.join(dataset.kinds)}"
                yield Problem(column.setting, message, code="unknown-column")
        inferred = set(query.feature_kinds()) - {column.name for column in named}
        for name in sorted(inferred - set(dataset.kinds)):
            message = f"has no column {name!r}, which train_data has"
            yield Problem(f"{section}.source", message, code="bad-data")
        for name in query.exclude if section == TRAIN else ():
            if name not in dataset.kinds:
                hint = nearest_name_hint(name, dataset.kinds)
                yield Problem("features.exclude", f"unknown column {name!r}{hint}", code="bad-data")
    if not query.feature_kinds():
        message = f"no columns are left for {query.features}"
        yield Problem(query.features, message, code="empty-data")


def _name_problem(column: NamedColumn, kinds: Mapping[str, str]) -> str:
    name, kind = column.name, column.kind
    if name not in kinds:
        return f"unknown column {name!r}{nearest_name_hint(name, kinds)}"
    got = kinds[name]
    typed = {NUMBER: got == NUMBER, DATE: got == DATE}
    # Texts may be numbers or dates, and dates and times have texts.
    if got == CATEGORY or typed.get(kind, got == NUMBER or is_date_or_time(got)):
        return ""
    expected = "dates" if kind == DATE else "numbers, booleans or texts"
    return f"column {name!r} has type {got}, expected {expected}"


def _value_problems(query: TableQuery, parts: Mapping[str, TablePart]) -> Problems:
    for column in query.named(TRAIN):
        if column.role == TARGET:
            for part in parts.values():
                yield from _missing_problems(column, part)
            if column.kind == CATEGORY:
                yield from _class_problems(query, column, parts)
        elif column.role == WEIGHT:
            yield from _weight_problems(column, parts)
    yield from _feature_problems(query, parts[TRAIN])


def _missing_problems(column: NamedColumn, part: TablePart) -> Problems:
    rows = np.flatnonzero(part.column(column.name).is_missing())
    if len(rows):
        message = (
            f"column {column.name!r} has no value in {rows_text(part, rows)}\n"
            "a target needs a value in each row: fill it in, or remove the rows"
        )
        yield Problem(column.setting, message, code="bad-data")


def _class_problems(
    query: TableQuery, column: NamedColumn, parts: Mapping[str, TablePart]
) -> Problems:
    name = column.name
    classes = query.classes(name)
    if len(classes) < 2:
        message = f"column {name!r} has only the class {', '.join(classes)!r} in training"
        yield Problem(column.setting, message, code="bad-data")
    part = parts.get(VALIDATION, parts[TRAIN])
    if part.column(name).is_missing().any():
        return
    try:
        class_numbers(part, name, classes)
    except DataError as error:
        are_numbers = odd_among_numbers(dict.fromkeys(classes, 1)) == ()
        hint = f"\nfor numbers, write {query.numbers.format(name)}" if are_numbers else ""
        yield Problem(column.setting, f"{error}{hint}", code=error.code)


def _weight_problems(column: NamedColumn, parts: Mapping[str, TablePart]) -> Problems:
    for section, part in parts.items():
        values = part.column(column.name).values
        rows = np.flatnonzero(~(values >= 0))
        if len(rows):
            message = (
                f"column {column.name!r} has {values[rows[0]]:g} in {rows_text(part, rows)}, "
                "expected 0 or more"
            )
            yield Problem(column.setting, message, code="bad-record")
        elif not values.any():
            yield Problem(column.setting, f"all weights of {section} are 0", code="bad-data")


def _feature_problems(query: TableQuery, part: TablePart) -> Problems:
    for name, kind in query.feature_kinds().items():
        problem = ""
        if part.column(name).is_missing().all():
            problem = f"column {name!r} has no values in training"
        elif kind == CATEGORY and not query.names_features:
            problem = _category_problem(query, part, name)
        if problem:
            yield Problem(query.features, problem, code="bad-data")


def _category_problem(query: TableQuery, part: TablePart, name: str) -> str:
    """Returns why the texts of a column are probably no categories, "" if they may be."""
    column = part.columns[name]
    counts = column.text_counts()
    odd = odd_among_numbers(counts)
    has_dates = query.has_categories and are_dates(text for text in counts if text)
    if has_dates or odd is not None:
        texts = odd[:1] if odd else column.vocabulary
        row = int((column.numbers(texts) >= 0).argmax())
        all_places = dataclasses.replace(part.places, rows=None)
        return (
            f"{all_places.text(row)}: column {name!r}: got {shorten(column.text(row), 80)!r} "
            f"in a column of texts, most of which are {'dates' if has_dates else 'numbers'}\n"
            f"{MISSING_HINT}; else {query.advice}"
        )
    different, rows = len(part.column(name).text_counts()), part.size
    if not query.has_categories or different <= max(_MAX_TEXTS, rows // 2):
        return ""
    message = f"column {name!r} has {different:,} different texts in {rows:,} rows, as an ID has"
    return f"{message}\n{query.advice}"


def unused_columns(query: TableQuery) -> list[str]:
    """Returns a line with the columns of the tables that are not used, none if all are."""
    unused: dict[str, str] = {}
    for section in query.sections:
        used = {column.name for column in query.named(section)} | {*query.feature_kinds()}
        for dataset in query.datasets(section):
            unused |= {
                name: name if kind in (NUMBER, CATEGORY, DATE) else f"{name} ({kind})"
                for name, kind in dataset.kinds.items()
                if name not in used
            }
    names = shorten(", ".join(unused.values()), _MOST_CHARACTERS)
    return [f"columns that are not used: {names}"] if unused else []


def shared_rows(
    query: TableQuery, excluded_rows: Callable[[], np.ndarray | None]
) -> SharedExamples | None:
    """Returns the validation rows whose features are those of a training row, or None.

    The comparison of a large table would delay the start; only the same rows are found there.
    `excluded_rows` returns the indices of the training rows that are left out, or None.
    """
    parts = [query.part(section) for section in query.sections]
    if len(parts) < 2:
        return None
    train, validation = parts
    if train.size + validation.size <= _MOST_COMPARED_ROWS:
        names = [*query.feature_kinds()]
        keys = [hash_rows((part.column(n) for n in names), exact=True) for part in parts]
    elif train.columns is validation.columns:  # Parts of the same table.
        keys = [part.places.all_rows() for part in parts]
    else:
        return None
    excluded = excluded_rows()
    if excluded is not None:
        keys[0] = np.delete(keys[0], excluded)
        places = (lambda row: "", validation.location)
    else:
        places = (train.location, validation.location)
    advice = "" if query.split else "set task.split to evaluate on other rows"
    return compare_keys(keys[0], keys[1], "rows", places, advice, by_features=True)


def summarize_table(query: TableQuery) -> TableSummary | None:
    """Returns a summary of the sections, None if one cannot be read."""
    try:
        roles = dict.fromkeys(query.feature_kinds(), FEATURE)
        roles |= {column.name: column.role for column in query.named(TRAIN) if column.kind != KEY}
        parts = {section: query.part(section) for section in query.sections}
        return dataclasses.replace(summarize(parts, roles), left_out=unused_columns(query))
    except DataError:
        return None
