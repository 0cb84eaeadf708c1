"""Size, channels and orientation in the headers of image files, of one and of many.

Does not import TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import struct
import warnings
from collections.abc import Iterator, Sequence

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8"
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
        has_alpha: Whether pixels have a transparency.
        bits: Bits of a channel.
        orientation: The EXIF orientation, 1 to 8; 1 if the image is stored upright.
    """

    height: int
    width: int
    channels: int
    has_alpha: bool = False
    bits: int = 8
    orientation: int = 1


def read_header(head: bytes) -> ImageHeader:
    """Returns the header of a PNG, JPEG, GIF or BMP file that starts with `head`.

    Raises ValueError if the format is another, or if the header is damaged or longer.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(head), formats=_FORMATS) as image:
            width, height = image.size
            is_deep = image.format == "PNG" and "16" in str(image.tile[0][3])
            # TensorFlow decodes GIF, BMP, palettes and CMYK to color.
            is_gray = image.mode.startswith(_GRAY) and image.format in ("PNG", "JPEG")
            is_transparent = image.format == "PNG" and image.mode in ("LA", "RGBA")
            return ImageHeader(
                height,
                width,
                1 if is_gray else 4 if is_transparent else 3,
                has_alpha=is_transparent,
                bits=16 if is_deep else 8,
                orientation=_orientation(image.info.get("exif", b"")),
            )
    except (*_DAMAGED, Image.DecompressionBombError) as error:
        raise ValueError(
            f"no image, or a damaged or too large one: bytes that start with 0x{head[:4].hex()}"
        ) from error


def _orientation(exif: bytes) -> int:
    from PIL import ExifTags, Image

    block = Image.Exif()
    # Otherwise, only the orientation is not known.
    with contextlib.suppress(*_DAMAGED):
        block.load(exif)
        value = block.get(ExifTags.Base.Orientation, 1)
        if value in range(1, 9):
            return int(value)
    return 1


@dataclasses.dataclass
class Tally:
    """The number of images with a property, and the name of the first of them."""

    count: int = 0
    first: str = ""

    def add(self, name: str) -> None:
        """Counts an image."""
        self.count += 1
        self.first = self.first or name

    def plus(self, other: Tally) -> Tally:
        """Returns the images of both."""
        return Tally(self.count + other.count, self.first or other.first)


@dataclasses.dataclass
class ImageSurvey:
    """What the headers of the images of a dataset tell.

    Attributes:
        total: The number of images.
        surveyed: The number of images whose headers were read: all, unless images are resized.
        gray: Grayscale images.
        color: Images in color, without transparency.
        rgba: Images in color with transparency.
        transparent: Images with transparency, in color or grayscale.
        deep: Images with 16 bits per channel.
        rotated: Images with an EXIF orientation other than upright.
        unknown: Images whose header cannot be read.
        smallest: Height and width of the smallest image; (0, 0) if none is known.
        largest: Height and width of the largest image.
    """

    total: int = 0
    surveyed: int = 0
    gray: Tally = dataclasses.field(default_factory=Tally)
    color: Tally = dataclasses.field(default_factory=Tally)
    rgba: Tally = dataclasses.field(default_factory=Tally)
    transparent: Tally = dataclasses.field(default_factory=Tally)
    deep: Tally = dataclasses.field(default_factory=Tally)
    rotated: Tally = dataclasses.field(default_factory=Tally)
    unknown: Tally = dataclasses.field(default_factory=Tally)
    smallest: tuple[int, int] = (0, 0)
    largest: tuple[int, int] = (0, 0)

    @property
    def channels(self) -> int:
        """The channels that lose no color: 3 if any image is in color, 4 if all have transparency.

        It is 0 if no header could be read.
        """
        known = self.gray.count + self.color.count + self.rgba.count
        if known and self.rgba.count == known:
            return 4
        return 3 if self.gray.count < known else min(known, 1)

    def add(self, name: str, header: ImageHeader | None) -> None:
        """Adds an image; its header is None if it cannot be read."""
        self.surveyed += 1
        if header is None:
            self.unknown.add(name)
            return
        {1: self.gray, 3: self.color, 4: self.rgba}[header.channels].add(name)
        properties = (
            (self.transparent, header.has_alpha),
            (self.deep, header.bits > 8),
            (self.rotated, header.orientation != 1),
        )
        for tally, applies in properties:
            if applies:
                tally.add(name)
        size = header.height, header.width
        self.smallest = min(self.smallest, size, key=_size_order) if any(self.smallest) else size
        self.largest = max(self.largest, size, key=_size_order)


def _size_order(size: tuple[int, int]) -> tuple[int, int]:
    return size[0] * size[1], size[0]


def join_surveys(surveys: Sequence[ImageSurvey]) -> ImageSurvey:
    """Returns the survey of the images of all sources."""
    joined = surveys[0]
    for other in surveys[1:]:
        tallies = {
            field.name: getattr(joined, field.name).plus(getattr(other, field.name))
            for field in dataclasses.fields(ImageSurvey)
            if isinstance(getattr(joined, field.name), Tally)
        }
        sizes = [survey.smallest for survey in (joined, other) if any(survey.smallest)] or [(0, 0)]
        joined = ImageSurvey(
            total=joined.total + other.total,
            surveyed=joined.surveyed + other.surveyed,
            **tallies,
            smallest=min(sizes, key=_size_order),
            largest=max(joined.largest, other.largest, key=_size_order),
        )
    return joined


def survey_rows(survey: ImageSurvey) -> list[tuple[str, str]]:
    """Returns the numbers, the channels and the sizes of images as rows of a name and a text."""
    kinds = {
        "grayscale": survey.gray,
        "in color": survey.color,
        "in color with transparency": survey.rgba,
        "with a header that cannot be read": survey.unknown,
    }
    counts = sorted(((kind, t.count) for kind, t in kinds.items()), key=lambda pair: -pair[1])
    sizes = [f"{height} × {width}" for height, width in (survey.smallest, survey.largest)]
    looked_at = f" ({survey.surveyed:,} looked at)" if survey.surveyed < survey.total else ""
    return [
        ("images", f"{survey.total:,}{looked_at}"),
        ("channels", ", ".join(f"{count:,} {kind}" for kind, count in counts if count)),
        ("height × width", " to ".join(dict.fromkeys(sizes))),
    ]


def survey_notes(survey: ImageSurvey, shape: Sequence[int], *, resized: bool) -> Iterator[str]:
    """Yields what may surprise in the images of a dataset, one line each.

    Args:
        survey: The survey of the images.
        shape: Height, width and channels of the network's input.
        resized: Whether the config sets that shape.
    """
    height, width, channels = shape
    gray, color = survey.gray, survey.color.plus(survey.rgba)
    if not resized and channels == 1 and color.count:
        yield (
            f"{_some(color, survey)} in color and converted to grayscale, like the training images"
        )
    elif not resized and channels > 1 and gray.count:
        choice = f"to use grayscale images, set task.model.input_size to [{height}, {width}, 1]"
        if 0 < color.count < gray.count:
            yield f"{_some(color, survey)} in color; the others are converted to color; {choice}"
        else:
            yield f"{_some(gray, survey)} grayscale and converted to color; {choice}"
    if survey.transparent.count and channels != 4:
        yield f"{_some(survey.transparent, survey)} transparent; the transparency is ignored"
    if survey.deep.count:
        yield f"{_some(survey.deep, survey)} stored with 16 bits per channel, of which 8 are used"
    if survey.rotated.count:
        yield (
            f"{_some(survey.rotated, survey)} rotated or mirrored by an EXIF orientation, which is "
            "not applied; store the pixels upright, for example with `exiftran -ai`"
        )


def _some(tally: Tally, survey: ImageSurvey) -> str:
    looked_at = "" if survey.surveyed == survey.total else " that were looked at"
    subject = f"{tally.count:,} of {survey.surveyed:,} images{looked_at}"
    such_as = f" ({tally.first})" if tally.count == 1 else f" (such as {tally.first})"
    return f"{subject}{such_as} {'is' if tally.count == 1 else 'are'}"
