"""Surveys the headers of all images of a dataset: channels, sizes, orientation; no TensorFlow.

One image does not decide for the others: `channels` follows from all of them. The result is cached
until a file changes, because there may be a million files.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from orbit_runner.data.disk_cache import Values, cached, file_status
from orbit_runner.data.images.dataset import Headers, ImageDataset
from orbit_runner.data.images.headers import ImageSurvey
from orbit_runner.utils.log import Progress

Dataset = TypeVar("Dataset", bound=ImageDataset)


def add_survey(dataset: Dataset) -> Dataset:
    """Returns a dataset with the survey of its images, which decides on its channels.

    A dataset in memory has no headers.
    """
    headers = dataset.headers()
    if headers is None:
        return dataset
    survey = _survey(headers)
    height, width, channels = dataset.image_shape
    if height:
        channels = survey.channels or channels
    changes: dict[str, object] = {"survey": survey, "image_shape": (height, width, channels)}
    return dataclasses.replace(dataset, **changes)  # type: ignore[type-var]


def _survey(headers: Headers) -> ImageSurvey:
    def survey_all() -> Values:
        survey = ImageSurvey()
        progress = Progress("reading the headers of images")
        for count, (name, header) in enumerate(headers.headers):
            survey.add(name, header)
            if count % 1024 == 0:
                progress(f"{count:,} images")
        return dataclasses.asdict(survey)

    files = [file_status(path) for path in headers.files]
    values = cached("images", [*headers.settings], survey_all, files)
    for name in ("smallest", "largest"):
        height, width = values[name]
        values[name] = height, width
    return ImageSurvey(**values)
