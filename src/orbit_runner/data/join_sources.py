"""Joins the sources of a mixture, one after the other, into one. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from orbit_runner.data.array_record.files import ArrayRecordFiles
from orbit_runner.data.array_record.joined_records import JoinedArrayRecords
from orbit_runner.data.array_record.source import ArrayRecordSource
from orbit_runner.data.images.files import FileSource
from orbit_runner.data.images.headers import join_surveys
from orbit_runner.data.source import ArraySource, RepeatedArray, leaves
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.columns import CATEGORY, MISSING, Column, TableSource, sort_texts
from orbit_runner.data.tables.summary import TablePart
from orbit_runner.data.tfrecord.joined_records import JoinedRecords
from orbit_runner.data.tfrecord.source import RecordSource
from orbit_runner.errors import DataError

ImageSource = ArraySource | FileSource | RecordSource | ArrayRecordSource


def join_arrays(sources: Sequence[ArraySource]) -> ArraySource:
    """Returns the examples of all sources.

    Raises `DataError` that names two sources if their arrays or their classes differ.
    """
    first = sources[0]
    for number, source in enumerate(sources[1:], 1):
        _check_equal(number, source.name, first.name, _array_specs(source), _array_specs(first))
        _check_classes(number, source, first)

    def join_trees(trees: list[Any]) -> Any:
        if isinstance(trees[0], Mapping):
            return {name: join_trees([tree[name] for tree in trees]) for name in trees[0]}
        return np.concatenate([_expand_repeated(array) for array in trees])

    counts = [source.num_classes for source in sources if source.num_classes is not None]
    return ArraySource(
        name=_join_names(sources),
        arrays=join_trees([source.arrays for source in sources]),
        num_classes=max(counts) if counts else None,
        mean=first.mean,
        std=first.std,
        labels=first.labels,
        files=tuple(path for source in sources for path in source.files),
        origins=_origins([source.size for source in sources]),
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


def join_files(sources: Sequence[FileSource]) -> FileSource:
    """Returns the image files of all sources. Raises `DataError` if their classes differ."""
    first = sources[0]
    for number, source in enumerate(sources[1:], 1):
        _check_classes(number, source, first)
    return FileSource(
        name=_join_names(sources),
        paths=tuple(path for source in sources for path in source.paths),
        label=np.concatenate([source.label for source in sources]),
        labels=first.labels,
        **_joined_survey(sources),
        left_out=tuple(dict.fromkeys(line for source in sources for line in source.left_out)),
        mean=first.mean,
        std=first.std,
        directories=tuple(one for source in sources for one in source.directories),
        label_files=tuple(path for source in sources for path in source.label_files),
        origins=_origins([source.size for source in sources]),
    )


def join_records(sources: Sequence[RecordSource]) -> JoinedRecords:
    """Returns the TFRecord files of all sources.

    Raises `DataError` if their features or their classes differ.
    """
    return JoinedRecords(
        **_shared_fields(sources),
        files=tuple(path for source in sources for path in source.files),
        indexes=tuple(index for source in sources for index in source.indexes),
    )


def join_array_records(sources: Sequence[ArrayRecordSource]) -> JoinedArrayRecords:
    """Returns the ArrayRecord files of all sources. For the errors, see `join_records`."""
    records = [source.records for source in sources]
    for one in records:
        one.close()  # The joined source opens the files itself.
    return JoinedArrayRecords(
        **_shared_fields(sources),
        records=ArrayRecordFiles(
            [path for one in records for path in one.paths],
            [count for one in records for count in one.counts],
        ),
    )


def _shared_fields(sources: Sequence[RecordSource | ArrayRecordSource]) -> dict[str, Any]:
    """Returns the fields of joined records that both kinds of files have."""
    first = sources[0]
    for number, source in enumerate(sources[1:], 1):
        _check_equal(number, source.name, first.name, _features(source), _features(first))
        _check_classes(number, source, first)
    names = ("mean", "std", "image_key", "label_key", "label_offset", "labels")
    return {name: getattr(first, name) for name in names} | {
        **_joined_survey(sources),
        "name": _join_names(sources),
        "sources": tuple(sources),
        "origins": _origins([source.size for source in sources]),
    }


def _joined_survey(
    sources: Sequence[FileSource | RecordSource | ArrayRecordSource],
) -> dict[str, Any]:
    """Returns the survey of all images, and the shape whose channels follow from it."""
    surveys = [source.survey for source in sources if source.survey is not None]
    height, width, channels = sources[0].image_shape
    if len(surveys) < len(sources):
        return {"image_shape": (height, width, channels)}
    survey = join_surveys(surveys)
    return {"survey": survey, "image_shape": (height, width, survey.channels or channels)}


def _features(source: RecordSource | ArrayRecordSource) -> dict[str, str]:
    return {
        "the image in": source.image_key,
        "the label in": source.label_key,
        "label_offset": str(source.label_offset),
    }


# Each type of source, where its images are, and the function that joins such sources.
_IMAGES: tuple[tuple[type, str, Callable[[Any], ImageSource]], ...] = (
    (ArraySource, "in memory", join_arrays),
    (FileSource, "in separate files", join_files),
    (RecordSource, "in TFRecord files", join_records),
    (ArrayRecordSource, "in ArrayRecord files", join_array_records),
)


@cache_source(maxsize=4)
def join_images(sources: tuple[ImageSource, ...], *, resized: bool) -> ImageSource:
    """Returns the images of all sources, which must be stored in the same way.

    `resized` is whether images may have different sizes. Raises `DataError` if sources are not
    stored in the same way, or if their images or classes differ.
    """
    (kind, place), *others = [_source_kind(source) for source in sources]
    for number, (other, other_place) in enumerate(others, 1):
        if other is not kind:
            raise DataError(
                f"{sources[number].name} cannot be mixed with {sources[0].name} of mixture[0]: the "
                f"images of one are {other_place}, and those of the other {place}",
                field=f"mixture[{number}].source",
            )
    if not resized:
        _check_sizes(sources)
    return next(join for one, _, join in _IMAGES if one is kind)(sources)


def _source_kind(source: ImageSource) -> tuple[type, str]:
    return next((kind, place) for kind, place, _ in _IMAGES if isinstance(source, kind))


def _check_sizes(sources: Sequence[ImageSource]) -> None:
    # Arrays are compared when they are joined. A first image that is corrupt has the height 0.
    shapes = [(0, 0, 0) if isinstance(one, ArraySource) else one.image_shape for one in sources]
    for number, shape in enumerate(shapes[1:], 1):
        if shape[0] and shapes[0][0] and shape[:2] != shapes[0][:2]:
            raise DataError(
                f"{sources[number].name}: got images {list(shape)}, expected {list(shapes[0])} as "
                f"in mixture[0], {sources[0].name}; set model.input_size to resize them",
                field=f"mixture[{number}]",
            )


def join_tables(parts: Sequence[TablePart]) -> TablePart:
    """Returns the rows of all parts, whose tables must have the same columns."""
    sizes = [part.source.size for part in parts]
    columns = {
        name: _join_columns([part.source.columns[name] for part in parts])
        for name in parts[0].source.columns
    }
    source = TableSource(
        name=_join_names([part.source for part in parts]),
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
    texts = sort_texts([*{text: None for one in columns for text in one.vocabulary}])
    codes = {text: code for code, text in enumerate(texts)}
    tables = [
        # The last entry is for missing values, whose code is -1.
        np.array([*(codes[text] for text in one.vocabulary), MISSING], np.int32)
        for one in columns
    ]
    values = [table[one.values] for table, one in zip(tables, columns, strict=True)]
    return Column(first.name, CATEGORY, np.concatenate(values), tuple(texts))


def _origins(sizes: Sequence[int]) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


def _join_names(sources: Sequence[Any]) -> str:
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


def _check_equal(
    number: int, name: str, first: str, got: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    for path in _all_keys(got, expected):
        if got.get(path) != expected.get(path):
            raise DataError(
                f"{name}: got {path} {got.get(path, 'none')}, expected "
                f"{expected.get(path, 'none')} as in mixture[0], {first}",
                field=f"mixture[{number}]",
            )


def _all_keys(*mappings: Mapping[str, str]) -> Iterator[str]:
    yield from dict.fromkeys(key for mapping in mappings for key in mapping)


def _check_classes(number: int, source: ImageSource, first: ImageSource) -> None:
    if source.labels == first.labels:
        return
    odd = sorted(set(source.labels or ()) ^ set(first.labels or ()))
    raise DataError(
        f"{source.name}: got {len(source.labels or ())} classes, expected the "
        f"{len(first.labels or ())} of mixture[0], {first.name}; they differ in "
        f"{', '.join(odd[:5]) or 'their order'}",
        field=f"mixture[{number}]",
    )
