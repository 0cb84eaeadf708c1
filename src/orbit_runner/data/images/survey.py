"""Surveys the headers of all images of a dataset: channels, sizes, orientation; no TensorFlow.

One image does not decide for the others: `channels` follows from all of them. The result is cached
until a file changes, because there may be a million files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orbit_runner.data.bad_records.result_cache import key_of
from orbit_runner.data.images.dataset import Headers, ImageDataset
from orbit_runner.data.images.headers import ImageSurvey
from orbit_runner.utils.cache import cache_directory, write_shared_file
from orbit_runner.utils.log import Progress

if TYPE_CHECKING:
    from orbit_runner.data.bad_records.result_cache import Key

Dataset = TypeVar("Dataset", bound=ImageDataset)

_FORMAT = 2
# Surveys that took less time are not cached.
_CACHED_SECONDS = 1.0


def add_survey(dataset: Dataset, *, resized: bool) -> Dataset:
    """Returns a dataset with the survey of its images, which decides on its channels.

    If `resized`, the config sets the channels, and only some images are surveyed. A dataset in
    memory has no headers.
    """
    headers = dataset.headers(sampled=resized)
    if headers is None:
        return dataset
    survey = _survey(headers, dataset.size)
    height, width, channels = dataset.image_shape
    if height and not resized:
        channels = survey.channels or channels
    changes: dict[str, object] = {"survey": survey, "image_shape": (height, width, channels)}
    return dataclasses.replace(dataset, **changes)  # type: ignore[type-var]


def _survey(headers: Headers, total: int) -> ImageSurvey:
    key = key_of(headers.files, headers.settings)
    survey = _read_cached(key)
    if survey is not None:
        return survey
    start = time.monotonic()
    survey = ImageSurvey(total=total)
    progress = Progress("reading the headers of images")
    for name, header in headers.headers:
        survey.add(name, header)
        if survey.surveyed % 1024 == 0:
            progress(f"{survey.surveyed:,} images")
    if time.monotonic() - start > _CACHED_SECONDS:
        _write_cached(key, survey)
    return survey


def _read_cached(key: Key) -> ImageSurvey | None:
    try:
        entry = json.loads(_cache_path(key).read_bytes())
        if entry["key"] != dict(key) or entry["format"] != _FORMAT:
            return None
        values: dict[str, Any] = entry["survey"]
        for name in ("smallest", "largest"):
            height, width = values[name]
            values[name] = height, width
        return ImageSurvey(**values)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_cached(key: Key, survey: ImageSurvey) -> None:
    entry = {"format": _FORMAT, "key": key, "survey": dataclasses.asdict(survey)}
    # If the cache cannot be written, the next run only takes longer.
    with contextlib.suppress(OSError):
        write_shared_file(_cache_path(key), json.dumps(entry).encode())


def _cache_path(key: Key) -> Path:
    # Sizes and times are not part of the name, so that a new survey replaces the old one.
    text = json.dumps([key["files"], key["what"]])
    return cache_directory("images") / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.survey"
