"""What the headers of images tell, such as the channels and sizes of a dataset. No TensorFlow.

One image does not decide for the others: the channels follow from all of them. The headers are
cached until a file changes, because there may be a million files.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import warnings
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


def read_header(
    source: bytes | str, formats: tuple[str, ...] = _FORMATS, *, decodes: bool = False
) -> ImageHeader:
    """Returns the header of an image, whose file has these contents or this path.

    Raises ValueError if the format is another one, or if the header is damaged; with `decodes`,
    also if the pixels are.
    """
    from PIL import Image

    try:
        file = source if isinstance(source, str) else io.BytesIO(source)
        with Image.open(file, formats=formats) as image:
            width, height = image.size
            # TensorFlow decodes GIF, BMP, palettes and CMYK to color.
            is_gray = image.mode.startswith(_GRAY) and image.format in ("PNG", "JPEG")
            has_alpha = image.format == "PNG" and image.mode == "RGBA"
            if decodes:
                image.draft("RGB", (64, 64))  # A small JPEG, which is much faster.
                image.load()
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


@dataclasses.dataclass(frozen=True)
class ImageSurvey:
    """What the headers of all images of a dataset tell.

    Attributes:
        headers: Height, width and channels of each image, integers [n, 3]; 0 if they are unknown.
    """

    headers: np.ndarray

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
    survey = ImageSurvey(values["headers"])
    height, width, channels = dataset.image_shape
    if height:
        channels = survey.channels or channels
    changes: dict[str, object] = {"survey": survey, "image_shape": (height, width, channels)}
    return dataclasses.replace(dataset, **changes)
