"""What the headers of images tell: the channels and the sizes of a dataset. No TensorFlow.

One image does not decide for the others: the channels follow from a sample of all images.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from orbit_runner.data.images.headers import ImageHeader

if TYPE_CHECKING:
    from orbit_runner.data.images.dataset import ImageDataset

Dataset = TypeVar("Dataset", bound="ImageDataset")

# Of a larger dataset, as many images are looked at, evenly spread.
_SAMPLE = 1000
_THREADS = 8
_GRAYSCALE, _COLOR, _TRANSPARENT = "grayscale", "in color", "in color with transparency"
_UNKNOWN = "with a header that cannot be read"
_KINDS = {1: _GRAYSCALE, 3: _COLOR, 4: _TRANSPARENT}


@dataclasses.dataclass(frozen=True)
class ImageSurvey:
    """What the headers of a sample of images tell.

    Attributes:
        size: The number of all images.
        names: The images of the sample.
        headers: Their headers; None if one cannot be read.
    """

    size: int
    names: Sequence[str]
    headers: Sequence[ImageHeader | None]

    @property
    def kinds(self) -> list[str]:
        """The kind of each image of the sample."""
        return [_UNKNOWN if header is None else _KINDS[header.channels] for header in self.headers]

    @property
    def channels(self) -> int:
        """The channels that lose no color: 3 if any image is in color, 4 if all have transparency.

        It is 0 if no header could be read.
        """
        known = {header.channels for header in self.headers if header is not None}
        return known.pop() if len(known) == 1 else 3 if known else 0

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The different heights and widths, from the smallest image to the largest."""
        known = {(header.height, header.width) for header in self.headers if header is not None}
        return sorted(known, key=lambda size: (size[0] * size[1], size[0]))


def add_survey(dataset: Dataset) -> Dataset:
    """Returns a dataset with the survey of its images, which decides on its channels.

    A dataset in memory has no headers.
    """
    if dataset.is_in_memory:
        return dataset
    size = dataset.size
    count = min(size, _SAMPLE)
    numbers = [number * size // count for number in range(count)]
    with ThreadPoolExecutor(_THREADS) as pool:
        headers = [*pool.map(dataset.header, numbers)]
    survey = ImageSurvey(size, [*map(dataset.example_name, numbers)], headers)
    height, width, channels = dataset.image_shape
    if height:
        channels = survey.channels or channels
    changes: dict[str, object] = {"survey": survey, "image_shape": (height, width, channels)}
    return dataclasses.replace(dataset, **changes)  # type: ignore[type-var]


def survey_rows(survey: ImageSurvey) -> list[tuple[str, str]]:
    """Returns the number, the channels and the sizes of images as rows of a name and a text."""
    counts = ", ".join(f"{count:,} {kind}" for kind, count in Counter(survey.kinds).most_common())
    sample = f" (of a sample of {len(survey.names):,})" if len(survey.names) < survey.size else ""
    ends = dict.fromkeys(f"{height} × {width}" for height, width in _ends(survey))
    return [
        ("images", f"{survey.size:,}"),
        ("channels", f"{counts}{sample}"),
        ("height × width", " to ".join(ends)),
    ]


def _ends(survey: ImageSurvey) -> list[tuple[int, int]]:
    sizes = survey.sizes or [(0, 0)]
    return [sizes[0], sizes[-1]]


def survey_note(survey: ImageSurvey, shape: Sequence[int]) -> str:
    """Returns which images are converted to the channels of the network's input, or ""."""
    height, width, channels = shape
    gray = [n for n, kind in zip(survey.names, survey.kinds, strict=True) if kind == _GRAYSCALE]
    color = [
        n
        for n, kind in zip(survey.names, survey.kinds, strict=True)
        if kind in (_COLOR, _TRANSPARENT)
    ]
    if channels == 1 and color:
        return f"{_some(survey, color)} in color and converted to grayscale"
    if channels == 1 or not gray:
        return ""
    choice = f"to use grayscale images, set task.model.input_size to [{height}, {width}, 1]"
    return f"{_some(survey, gray)} grayscale and converted to color; {choice}"


def _some(survey: ImageSurvey, names: Sequence[str]) -> str:
    such_as = "" if len(names) == 1 else "such as "
    verb = "is" if len(names) == 1 else "are"
    return f"{len(names):,} of {len(survey.names):,} images ({such_as}{names[0]}) {verb}"
