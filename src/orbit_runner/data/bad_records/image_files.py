"""Leaves out image files that cannot be decoded. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from orbit_runner.data.bad_records.decoding import find_undecodable
from orbit_runner.data.bad_records.report import check_bad_records
from orbit_runner.data.bad_records.result_cache import key_of, read_result, write_result
from orbit_runner.data.images.files import FileSource, first_image_shape
from orbit_runner.data.source_cache import cache_source


@cache_source(maxsize=8)
def exclude_bad_images(source: FileSource, limit: int) -> FileSource:
    """Returns the images of a source that can be decoded, as if the other files did not exist.

    All images are decoded once, and again if a file changes. Raises `DataError` if more than
    `limit` cannot be decoded.
    """
    found = _find_bad_images(source.paths)
    check_bad_records(source.name, found, limit, source.size, "images")
    if not found:
        return source
    kept = np.setdiff1d(np.arange(source.size), list(found))
    paths = tuple(source.paths[number] for number in kept.tolist())
    listed = source.listed
    if listed is not None:
        rows = kept if listed.rows is None else listed.rows[kept]
        listed = dataclasses.replace(listed, rows=rows)
    return dataclasses.replace(
        source,
        paths=paths,
        label=source.label[kept],
        image_shape=first_image_shape(paths[0]),
        directories=_remaining_directories(source, kept),
        listed=listed,
    )


def _find_bad_images(paths: Sequence[str]) -> dict[int, str]:
    key = key_of(paths, ["images"])
    found = read_result("images", key)
    if found is None:
        found = find_undecodable({"images": list(paths)}, "images", len(paths))
        write_result("images", key, found)
    return found


def _remaining_directories(source: FileSource, kept: np.ndarray) -> tuple[tuple[str, int], ...]:
    """Returns the directories that have images left, and their numbers of images."""
    ends = np.cumsum([count for _, count in source.directories])
    counts = np.diff(np.searchsorted(kept, ends), prepend=0).tolist()
    pairs = zip(source.directories, counts, strict=True)
    return tuple((name, count) for (name, _), count in pairs if count)
