"""What is known of images without decoding them: what headers tell, and channel statistics.

Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import warnings
from collections import Counter
from collections.abc import Sequence

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


# What a survey counts, as `survey_rows` names it.
_GRAYSCALE, _COLOR, _TRANSPARENT = "grayscale", "in color", "in color with transparency"
_UNKNOWN = "with a header that cannot be read"
_KINDS = {1: _GRAYSCALE, 3: _COLOR, 4: _TRANSPARENT}


@dataclasses.dataclass
class ImageSurvey:
    """What the headers of all images of a dataset tell.

    Attributes:
        counts: The number of images of each kind.
        first: The name of the first image of each kind.
        smallest: Height and width of the smallest image; (0, 0) if none is known.
        largest: Height and width of the largest image.
    """

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    first: dict[str, str] = dataclasses.field(default_factory=dict)
    smallest: tuple[int, int] = (0, 0)
    largest: tuple[int, int] = (0, 0)

    @property
    def total(self) -> int:
        """The number of images."""
        return sum(self.counts.values())

    @property
    def channels(self) -> int:
        """The channels that lose no color: 3 if any image is in color, 4 if all have transparency.

        It is 0 if no header could be read.
        """
        known = {channels for channels, kind in _KINDS.items() if self.counts.get(kind)}
        return known.pop() if len(known) == 1 else 3 if known else 0

    def add(self, name: str, header: ImageHeader | None) -> None:
        """Adds an image; its header is None if it cannot be read."""
        kind = _UNKNOWN
        if header is not None:
            kind = _KINDS[header.channels]
            size = header.height, header.width
            self.smallest = (
                min(self.smallest, size, key=_size_order) if any(self.smallest) else size
            )
            self.largest = max(self.largest, size, key=_size_order)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.first.setdefault(kind, name)


def _size_order(size: tuple[int, int]) -> tuple[int, int]:
    return size[0] * size[1], size[0]


def join_surveys(surveys: Sequence[ImageSurvey]) -> ImageSurvey:
    """Returns the survey of the images of all sources."""
    sizes = [survey.smallest for survey in surveys if any(survey.smallest)]
    return ImageSurvey(
        counts=dict(sum((Counter(survey.counts) for survey in surveys), Counter())),
        first={kind: n for survey in reversed(surveys) for kind, n in survey.first.items()},
        smallest=min(sizes, key=_size_order, default=(0, 0)),
        largest=max((survey.largest for survey in surveys), key=_size_order),
    )


def survey_rows(survey: ImageSurvey) -> list[tuple[str, str]]:
    """Returns the numbers, the channels and the sizes of images as rows of a name and a text."""
    counts = sorted(survey.counts.items(), key=lambda pair: -pair[1])
    sizes = [f"{height} × {width}" for height, width in (survey.smallest, survey.largest)]
    return [
        ("images", f"{survey.total:,}"),
        ("channels", ", ".join(f"{count:,} {kind}" for kind, count in counts)),
        ("height × width", " to ".join(dict.fromkeys(sizes))),
    ]


def survey_note(survey: ImageSurvey, shape: Sequence[int]) -> str:
    """Returns which images are converted to the channels of the network's input, or ""."""
    height, width, channels = shape
    gray = survey.counts.get(_GRAYSCALE, 0)
    colors = [kind for kind in (_COLOR, _TRANSPARENT) if kind in survey.counts]
    color = sum(survey.counts[kind] for kind in colors)
    if channels == 1 and color:
        return (
            f"{_some(survey, colors)} in color and converted to grayscale, like the training images"
        )
    if channels == 1 or not gray:
        return ""
    choice = f"to use grayscale images, set task.model.input_size to [{height}, {width}, 1]"
    if 0 < color < gray:
        return f"{_some(survey, colors)} in color; the others are converted to color; {choice}"
    return f"{_some(survey, [_GRAYSCALE])} grayscale and converted to color; {choice}"


def _some(survey: ImageSurvey, kinds: Sequence[str]) -> str:
    count = sum(survey.counts[kind] for kind in kinds)
    first = survey.first[kinds[0]]
    such_as = f" ({first})" if count == 1 else f" (such as {first})"
    return f"{count:,} of {survey.total:,} images{such_as} {'is' if count == 1 else 'are'}"
