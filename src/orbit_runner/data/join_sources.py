"""Joins the sources of a mixture, one after the other, into one. Does not import TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from orbit_runner.data.images.files import FileSource
from orbit_runner.data.source import ArraySource, Repeated, leaves
from orbit_runner.data.tables.columns import CATEGORY, MISSING, Column, TableSource, sorted_texts
from orbit_runner.data.tables.summary import TablePart
from orbit_runner.errors import DataError


def join_arrays(sources: Sequence[ArraySource]) -> ArraySource:
    """Returns the examples of all sources.

    Raises `DataError` that names two sources if their arrays or their classes differ.
    """
    first = sources[0]
    for number, source in enumerate(sources[1:], 1):
        _check_equal(number, source.name, first.name, _specs(source), _specs(first))
        _check_classes(number, source, first)

    def joined(trees: list[Any]) -> Any:
        if isinstance(trees[0], Mapping):
            return {name: joined([tree[name] for tree in trees]) for name in trees[0]}
        return np.concatenate([_whole(array) for array in trees])

    counts = [source.num_classes for source in sources if source.num_classes is not None]
    return ArraySource(
        name=_name(sources),
        arrays=joined([source.arrays for source in sources]),
        num_classes=max(counts) if counts else None,
        mean=first.mean,
        std=first.std,
        labels=first.labels,
        files=tuple(path for source in sources for path in source.files),
        origins=_origins([source.size for source in sources]),
    )


def join_files(sources: Sequence[FileSource]) -> FileSource:
    """Returns the image files of all sources. Raises `DataError` if their classes differ."""
    first = sources[0]
    for number, source in enumerate(sources[1:], 1):
        _check_classes(number, source, first)
    return FileSource(
        name=_name(sources),
        paths=tuple(path for source in sources for path in source.paths),
        label=np.concatenate([source.label for source in sources]),
        labels=first.labels,
        image_shape=first.image_shape,
        mean=first.mean,
        std=first.std,
        directories=tuple(one for source in sources for one in source.directories),
        label_files=tuple(path for source in sources for path in source.label_files),
        origins=_origins([source.size for source in sources]),
    )


@functools.lru_cache(maxsize=4)
def join_images(sources: tuple[Any, ...]) -> ArraySource | FileSource:
    """Returns the images of all sources, which must be all in memory, or all in files of their own.

    Raises `DataError` for other sources, or if their images or classes differ.
    """
    if all(isinstance(source, ArraySource) for source in sources):
        return join_arrays(sources)
    if all(isinstance(source, FileSource) for source in sources):
        return join_files(sources)
    kinds = (ArraySource, FileSource)
    for number, source in enumerate(sources):
        if not isinstance(source, kinds):
            raise DataError(
                f"{source.name}: cannot be part of a mixture, because its records are read in "
                "blocks; use image files (image_folder, image_csv)",
                field=f"mixture[{number}].source",
            )
    odd = next(n for n, source in enumerate(sources) if type(source) is not type(sources[0]))
    raise DataError(
        f"{sources[odd].name} cannot be mixed with {sources[0].name} of mixture[0]: one has its "
        "images in memory, and the other in files",
        field=f"mixture[{odd}].source",
    )


def join_tables(parts: Sequence[TablePart]) -> TablePart:
    """Returns the rows of all parts, whose tables must have the same columns."""
    sizes = [part.source.size for part in parts]
    columns = {
        name: _join_columns([part.source.columns[name] for part in parts])
        for name in parts[0].source.columns
    }
    source = TableSource(
        name=_name([part.source for part in parts]),
        columns=columns,
        parts=[one for part in parts for one in part.source.parts],
        files=tuple(path for part in parts for path in part.source.files),
    )
    rows = [
        (np.arange(part.size) if part.rows is None else part.rows) + before
        for part, before in zip(parts, np.cumsum([0, *sizes]).tolist(), strict=False)
    ]
    every = all(part.rows is None for part in parts)
    origins = _origins([part.size for part in parts])
    return TablePart(source, None if every else np.concatenate(rows), origins)


def _join_columns(columns: Sequence[Column]) -> Column:
    first = columns[0]
    if first.kind != CATEGORY:
        return Column(first.name, first.kind, np.concatenate([one.values for one in columns]))
    texts = sorted_texts([*{text: None for one in columns for text in one.vocabulary}])
    codes = {text: code for code, text in enumerate(texts)}
    tables = [
        # The last one is that of missing values, whose code is -1.
        np.array([*(codes[text] for text in one.vocabulary), MISSING], np.int32)
        for one in columns
    ]
    values = [table[one.values] for table, one in zip(tables, columns, strict=True)]
    return Column(first.name, CATEGORY, np.concatenate(values), tuple(texts))


def _origins(sizes: Sequence[int]) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


def _name(sources: Sequence[Any]) -> str:
    return " and ".join(dict.fromkeys(source.name for source in sources))


def _whole(array: np.ndarray | Repeated) -> np.ndarray:
    if not isinstance(array, Repeated):
        return array
    return np.resize(array.rows, array.shape)


def _specs(source: ArraySource) -> dict[str, str]:
    return {
        # Texts may have any length.
        path: f"{array.dtype if array.dtype.kind not in 'US' else 'texts'} {list(array.shape[1:])}"
        for path, array in leaves(source.arrays)
    }


def _check_equal(
    number: int, name: str, first: str, got: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    for path in _keys(got, expected):
        if got.get(path) != expected.get(path):
            raise DataError(
                f"{name}: got {path} {got.get(path, 'none')}, expected "
                f"{expected.get(path, 'none')} as in mixture[0], {first}",
                field=f"mixture[{number}]",
            )


def _keys(*mappings: Mapping[str, str]) -> Iterator[str]:
    yield from dict.fromkeys(key for mapping in mappings for key in mapping)


def _check_classes(
    number: int, source: ArraySource | FileSource, first: ArraySource | FileSource
) -> None:
    if source.labels == first.labels:
        return
    odd = sorted(set(source.labels or ()) ^ set(first.labels or ()))
    raise DataError(
        f"{source.name}: got {len(source.labels or ())} classes, expected the "
        f"{len(first.labels or ())} of mixture[0], {first.name}; they differ in "
        f"{', '.join(odd[:5]) or 'their order'}",
        field=f"mixture[{number}]",
    )
