"""Joins the sources of a mixture, one after the other, into one. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from orbit_runner.data.source import ArraySource, RepeatedArray, leaves
from orbit_runner.data.tables.columns import CATEGORY, MISSING, Column, TableSource, sort_texts
from orbit_runner.data.tables.summary import TablePart
from orbit_runner.errors import DataError


def join_arrays(sources: Sequence[ArraySource]) -> ArraySource:
    """Returns the examples of all sources.

    Raises `DataError` that names two sources if their arrays or their classes differ.
    """
    first = sources[0]
    for number, source in enumerate(sources[1:], 1):
        check_equal(number, source.name, first.name, _array_specs(source), _array_specs(first))
        check_classes(number, source, first)

    def join_trees(trees: list[Any]) -> Any:
        if isinstance(trees[0], Mapping):
            return {name: join_trees([tree[name] for tree in trees]) for name in trees[0]}
        return np.concatenate([_expand_repeated(array) for array in trees])

    counts = [source.num_classes for source in sources if source.num_classes is not None]
    return ArraySource(
        name=join_names(sources),
        arrays=join_trees([source.arrays for source in sources]),
        num_classes=max(counts) if counts else None,
        mean=first.mean,
        std=first.std,
        labels=first.labels,
        files=tuple(path for source in sources for path in source.files),
        origins=origins_of([source.size for source in sources]),
        **_join_places(sources),
    )


def _join_places(sources: Sequence[ArraySource]) -> dict[str, Any]:
    """Returns `parts` and `rows` of all sources, unless a source does not know them."""
    if not all(source.parts for source in sources):
        return {}
    parts = [part for source in sources for part in source.parts]
    if all(source.rows is None for source in sources):
        return {"parts": tuple(parts)}
    sizes = [sum(count for _, count in source.parts) for source in sources]
    rows = [
        (np.arange(source.size) if source.rows is None else source.rows) + before
        for source, before in zip(sources, np.cumsum([0, *sizes]).tolist(), strict=False)
    ]
    return {"parts": tuple(parts), "rows": np.concatenate(rows)}


def join_tables(parts: Sequence[TablePart]) -> TablePart:
    """Returns the rows of all parts, whose tables must have the same columns."""
    sizes = [part.source.size for part in parts]
    columns = {
        name: _join_columns([part.source.columns[name] for part in parts])
        for name in parts[0].source.columns
    }
    source = TableSource(
        name=join_names([part.source for part in parts]),
        columns=columns,
        parts=[one for part in parts for one in part.source.parts],
        files=tuple(path for part in parts for path in part.source.files),
    )
    rows = [
        (np.arange(part.size) if part.rows is None else part.rows) + before
        for part, before in zip(parts, np.cumsum([0, *sizes]).tolist(), strict=False)
    ]
    every = all(part.rows is None for part in parts)
    origins = origins_of([part.size for part in parts])
    return TablePart(source, None if every else np.concatenate(rows), origins)


def _join_columns(columns: Sequence[Column]) -> Column:
    first = columns[0]
    if first.kind != CATEGORY:
        return Column(first.name, first.kind, np.concatenate([one.values for one in columns]))
    texts = sort_texts([*{text: None for one in columns for text in one.vocabulary}])
    codes = {text: code for code, text in enumerate(texts)}
    tables = [
        # The last entry is for missing values, whose code is -1.
        np.array([*(codes[text] for text in one.vocabulary), MISSING], np.int32)
        for one in columns
    ]
    values = [table[one.values] for table, one in zip(tables, columns, strict=True)]
    return Column(first.name, CATEGORY, np.concatenate(values), tuple(texts))


def origins_of(sizes: Sequence[int]) -> np.ndarray:
    """Returns the number of the source of each example, integers [n]."""
    return np.repeat(np.arange(len(sizes)), sizes)


def join_names(sources: Sequence[Any]) -> str:
    """Returns the different names of sources."""
    return " and ".join(dict.fromkeys(source.name for source in sources))


def _expand_repeated(array: np.ndarray | RepeatedArray) -> np.ndarray:
    if not isinstance(array, RepeatedArray):
        return array
    return np.resize(array.rows, array.shape)


def _array_specs(source: ArraySource) -> dict[str, str]:
    return {
        # Texts may have any length.
        path: f"{array.dtype if array.dtype.kind not in 'US' else 'texts'} {list(array.shape[1:])}"
        for path, array in leaves(source.arrays)
    }


def check_equal(
    number: int, name: str, first: str, got: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    """Raises `DataError` if a source of a mixture differs from the first in a value by name."""
    for path in _all_keys(got, expected):
        if got.get(path) != expected.get(path):
            raise DataError(
                f"{name}: got {path} {got.get(path, 'none')}, expected "
                f"{expected.get(path, 'none')} as in mixture[0], {first}",
                field=f"mixture[{number}]",
            )


def _all_keys(*mappings: Mapping[str, str]) -> Iterator[str]:
    yield from dict.fromkeys(key for mapping in mappings for key in mapping)


def check_classes(number: int, source: Any, first: Any) -> None:
    """Raises `DataError` if the classes of a source of a mixture differ from those of the first."""
    if source.labels == first.labels:
        return
    odd = sorted(set(source.labels or ()) ^ set(first.labels or ()))
    raise DataError(
        f"{source.name}: got {len(source.labels or ())} classes, expected the "
        f"{len(first.labels or ())} of mixture[0], {first.name}; they differ in "
        f"{', '.join(odd[:5]) or 'their order'}",
        field=f"mixture[{number}]",
    )
