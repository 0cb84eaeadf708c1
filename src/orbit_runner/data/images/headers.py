"""What the header of an image tells, and the statistics of natural images; no TensorFlow."""

from __future__ import annotations

import dataclasses
import io
import struct
import warnings

# Of ImageNet's training images, as in Model Garden; in pixel values of 0 to 255.
NATURAL_MEAN = tuple(255 * value for value in (0.485, 0.456, 0.406))
NATURAL_STD = tuple(255 * value for value in (0.229, 0.224, 0.225))
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
