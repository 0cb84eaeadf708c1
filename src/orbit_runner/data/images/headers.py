"""What the headers of images tell, such as the channels and sizes of a dataset. No TensorFlow.

One image does not decide for the others: the channels follow from all of them. The headers are
cached until a file changes, because there may be a million files.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from orbit_runner.data.disk_cache import Values, cached, file_status
from orbit_runner.utils.log import Progress

# TensorFlow does not decode larger images.
_MOST_BYTES = 2**29
_FORMATS = ("PNG", "JPEG", "GIF", "BMP")
# The modes of grayscale images, of any depth, begin with one of these.
_GRAY = ("1", "L", "I")
# What Pillow raises for damaged files. It only warns of a damaged EXIF block.
_DAMAGED = (
    *(OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, TypeError),
    *(struct.error, UserWarning),
)
warnings.filterwarnings("ignore", "Corrupt EXIF data", UserWarning)


@dataclasses.dataclass(frozen=True)
class ImageHeader:
    """What the header of an image file tells.

    Attributes:
        height: Rows of pixels, as they are stored.
        width: Columns of pixels.
        channels: 1 for grayscale, 3 for color, 4 for color with transparency.
    """

    height: int
    width: int
    channels: int


def read_header(source: bytes | str, formats: tuple[str, ...] = _FORMATS) -> ImageHeader:
    """Returns the header of an image, whose file has these contents or this path.

    Raises ValueError if the format is another one, or if the header is damaged.
    """
    from PIL import Image

    try:
        file = source if isinstance(source, str) else io.BytesIO(source)
        with Image.open(file, formats=formats) as image:
            width, height = image.size
            # TensorFlow decodes GIF, BMP, palettes and CMYK to color.
            is_gray = image.mode.startswith(_GRAY) and image.format in ("PNG", "JPEG")
            has_alpha = image.format == "PNG" and image.mode == "RGBA"
    except (*_DAMAGED, Image.DecompressionBombError) as error:
        start = "" if isinstance(source, str) else f": bytes that start with 0x{source[:4].hex()}"
        raise ValueError(f"no image, or a damaged or too large one{start}") from error
    return ImageHeader(height, width, 1 if is_gray else 4 if has_alpha else 3)


def image_shape(source: bytes | str) -> tuple[int, int, int]:
    """Returns the height, width and channels in the header of a PNG or JPEG image.

    Raises ValueError if the image is of another format, or if its size is not supported.
    """
    header = read_header(source, ("PNG", "JPEG"))
    if not 0 < header.height * header.width * header.channels < _MOST_BYTES:
        raise ValueError(
            f"an image of {header.width} × {header.height} pixels, which cannot be decoded"
        )
    return header.height, header.width, header.channels


Dataset = TypeVar("Dataset", bound=Any)  # An `ImageDataset`, whose module imports this one.

# What an image is, by its channels; 0 if its header cannot be read.
_KINDS = {
    0: "with a header that cannot be read",
    1: "grayscale",
    3: "in color",
    4: "in color with transparency",
}


@dataclasses.dataclass(frozen=True)
class ImageSurvey:
    """What the headers of all images of a dataset tell.

    Attributes:
        headers: Height, width and channels of each image, integers [n, 3]; 0 if they are unknown.
        name: Returns the name of an image by its number.
    """

    headers: np.ndarray
    name: Callable[[int], str]

    @property
    def channels(self) -> int:
        """The channels that lose no color: 3 if any image is in color, 4 if all have transparency.

        It is 0 if no header could be read.
        """
        known = {*np.unique(self.headers[:, 2]).tolist()} - {0}
        return known.pop() if len(known) == 1 else 3 if known else 0

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The different heights and widths, from the smallest image to the largest."""
        known = np.unique(self.headers[self.headers[:, 2] > 0, :2], axis=0)
        pairs = ((int(height), int(width)) for height, width in known)
        return sorted(pairs, key=lambda size: (size[0] * size[1], size[0]))


def add_survey(dataset: Dataset) -> Dataset:
    """Returns a dataset with the survey of its images, which decides on its channels.

    A dataset in memory has no headers.
    """
    if dataset.is_in_memory:
        return dataset

    def read_headers() -> Values:
        progress = Progress("reading the headers of images")
        headers = np.zeros((dataset.size, 3), np.int32)
        for number, header in enumerate(dataset.headers()):
            if header is not None:
                headers[number] = header.height, header.width, header.channels
            if number % 1024 == 0:
                progress(f"{number:,} images")
        return {"headers": headers}

    paths, key = dataset.header_files()
    files = [file_status(path) for path in paths]
    values = cached("images", ["headers", *key], read_headers, files)
    survey = ImageSurvey(values["headers"], dataset.example_name)
    height, width, channels = dataset.image_shape
    if height:
        channels = survey.channels or channels
    changes: dict[str, object] = {"survey": survey, "image_shape": (height, width, channels)}
    return dataclasses.replace(dataset, **changes)


def survey_rows(survey: ImageSurvey) -> list[tuple[str, str]]:
    """Returns the number, the channels and the sizes of images as rows of a name and a text."""
    channels, counts = np.unique(survey.headers[:, 2], return_counts=True)
    pairs = sorted(zip(counts.tolist(), channels.tolist(), strict=True), reverse=True)
    sizes = survey.sizes or [(0, 0)]
    ends = dict.fromkeys(f"{height} × {width}" for height, width in (sizes[0], sizes[-1]))
    return [
        ("images", f"{len(survey.headers):,}"),
        ("channels", ", ".join(f"{count:,} {_KINDS[channel]}" for count, channel in pairs)),
        ("height × width", " to ".join(ends)),
    ]


def survey_note(survey: ImageSurvey, shape: Sequence[int]) -> str:
    """Returns which images are converted to the channels of the network's input, or ""."""
    height, width, channels = shape
    gray, color = (np.flatnonzero(np.isin(survey.headers[:, 2], kinds)) for kinds in ((1,), (3, 4)))
    if channels == 1 and len(color):
        return f"{_some(survey, color)} in color and converted to grayscale"
    if channels == 1 or not len(gray):
        return ""
    choice = f"to use grayscale images, set task.model.input_size to [{height}, {width}, 1]"
    return f"{_some(survey, gray)} grayscale and converted to color; {choice}"


def _some(survey: ImageSurvey, numbers: np.ndarray) -> str:
    such_as = "" if len(numbers) == 1 else "such as "
    verb = "is" if len(numbers) == 1 else "are"
    name = survey.name(int(numbers[0]))
    return f"{len(numbers):,} of {len(survey.headers):,} images ({such_as}{name}) {verb}"
