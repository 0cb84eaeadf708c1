"""Size, channels and orientation in the headers of image files, of one and of many.

Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Sequence

PNG = b"\x89PNG\r\n\x1a\n"
# Channels by color type: grayscale, RGB, palette, grayscale with alpha, RGBA.
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 1, 6: 4}
_PNG_ALPHA = (4, 6)
JPEG = b"\xff\xd8"
# Start-of-frame markers; C4, C8 and CC have other meanings.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_APP1 = 0xE1
_EXIF = b"Exif\0\0"
_ORIENTATION = 0x0112


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
    try:
        if head.startswith(PNG):
            return _read_png(head)
        if head.startswith(JPEG):
            return _read_jpeg(head)
        if head[:6] in (b"GIF87a", b"GIF89a"):
            width, height = struct.unpack_from("<HH", head, 6)
            return ImageHeader(height, width, 3)
        if head.startswith(b"BM"):
            width, height = struct.unpack_from("<ii", head, 18)
            return ImageHeader(abs(height), width, 3)  # Rows are stored from the top if negative.
    except (struct.error, IndexError, KeyError):
        raise ValueError("a corrupted image") from None
    raise ValueError(f"bytes that start with 0x{head[:4].hex()}")


def _read_png(head: bytes) -> ImageHeader:
    width, height, bits, color = struct.unpack_from(">IIBB", head, 16)
    orientation = 1
    place = len(PNG)
    while place + 8 <= len(head):
        length, kind = struct.unpack_from(">I4s", head, place)
        if kind == b"eXIf":
            orientation = _exif_orientation(head[place + 8 : place + 8 + length])
        if kind in (b"eXIf", b"IDAT"):
            break
        place += 12 + length
    return ImageHeader(
        height,
        width,
        _PNG_CHANNELS[color],
        has_alpha=color in _PNG_ALPHA,
        bits=bits,
        orientation=orientation,
    )


def _read_jpeg(head: bytes) -> ImageHeader:
    place = 2
    orientation = 1
    while True:
        marker, length = struct.unpack_from(">xBH", head, place)
        segment = place + 4
        if marker == _APP1 and head.startswith(_EXIF, segment):
            orientation = _exif_orientation(head[segment + len(_EXIF) : place + 2 + length])
        if marker in _JPEG_FRAMES:
            bits, height, width, channels = struct.unpack_from(">BHHB", head, segment)
            # CMYK is decoded to RGB.
            return ImageHeader(height, width, min(channels, 3), bits=bits, orientation=orientation)
        place += 2 + length


def _exif_orientation(exif: bytes) -> int:
    """Returns the orientation in the first directory of an EXIF block, which is a TIFF file."""
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    try:
        (directory,) = struct.unpack_from(f"{order}I", exif, 4)
        (entries,) = struct.unpack_from(f"{order}H", exif, directory)
        for number in range(entries):
            # Tag, type, number of values, and the value if it is short.
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", exif, directory + 2 + 12 * number)
            if tag == _ORIENTATION:
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass
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
