"""MNIST, and other datasets in its format such as Fashion-MNIST."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from orbit_runner.data.files import data_folder, download_hint
from orbit_runner.data.images.dataset import ImageArrays
from orbit_runner.errors import DataError

_PREFIXES = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
# Mean and standard deviation of MNIST's training images, in units of 0 to 255, as in the MNIST
# example of https://github.com/pytorch/examples. Fashion-MNIST is brighter, but that does no harm.
_MEAN, _STD = (0.1307 * 255,), (0.3081 * 255,)


def load(*, split: str, data_dir: str = "") -> ImageArrays:
    """Returns arrays in MNIST's format: `image` uint8 [n, height, width, 1], `label` int32 [n].

    The files are IDX, plain or compressed with gzip. `split` is `train`, `test` or `all`.
    `data_dir` contains `train-images-idx3-ubyte` and the others; names with `.idx3-ubyte` and `.gz`
    are found, too. Raises `DataError` if a file is missing or invalid.
    """
    directory = data_folder("mnist", data_dir, _hint(data_dir))
    pairs = [
        (_find(directory, f"{prefix}-images", 3), _find(directory, f"{prefix}-labels", 1))
        for prefix in _PREFIXES[split]
    ]
    parts = [_read_pair(*pair) for pair in pairs]
    shapes = {image.shape[1:3] for image, _ in parts}
    if len(shapes) > 1:
        raise DataError(
            f"mnist: got images of {sorted(shapes)} pixels in {data_dir}, expected one size",
            code="data-mismatch",
        )
    return ImageArrays(
        name="mnist",
        arrays={
            "image": np.concatenate([image for image, _ in parts])[..., np.newaxis],
            "label": np.concatenate([label for _, label in parts]).astype(np.int32),
        },
        num_classes=10,
        mean=_MEAN,
        std=_STD,
        files=tuple(path for pair in pairs for path in pair),
    )


def _find(directory: Path, stem: str, rank: int) -> Path:
    names = [f"{stem}{mark}idx{rank}-ubyte{end}" for mark in "-." for end in ("", ".gz")]
    for name in names:
        if (directory / name).is_file():
            return directory / name
    raise DataError(
        f"mnist: no {names[0]} (or .gz) in {directory}; {_hint(str(directory))}",
        code="missing-file",
    )


def _hint(data_dir: str) -> str:
    names = ("mnist", "fashion_mnist")
    return download_hint(
        *(names[::-1] if "fashion" in data_dir.lower() else names), data_dir=data_dir
    )


def _read_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    image, label = read_idx(images, 3), read_idx(labels, 1)
    if len(image) != len(label):
        raise DataError(
            f"{labels}: got {len(label)} labels, expected {len(image)}, one per image in {images}",
            code="data-mismatch",
        )
    if label.max() > 9:
        record = int(np.argmax(label > 9))
        raise DataError(
            f"{labels}: got label {label[record]} in record {record}, expected 0 to 9",
            code="bad-record",
        )
    return image, label


def read_idx(path: Path, rank: int) -> np.ndarray:
    """Returns the values of an IDX file of bytes: read-only uint8 with `rank` dimensions.

    The format is that of http://yann.lecun.com/exdb/mnist: two zero bytes, 8 for unsigned bytes,
    the number of dimensions, each dimension as four bytes, then the values. A file whose name ends
    in `.gz` is decompressed. Raises `DataError` if the file has another rank or size.
    """
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})", code="unreadable-file") from None
    header = 4 + 4 * rank
    magic = bytes((0, 0, 8, rank))
    if content[:4] != magic or len(content) < header:
        raise DataError(
            f"{path}: starts with 0x{content[:header].hex()}, expected 0x{magic.hex()} (IDX, "
            f"uint8, rank {rank}) and {rank} dimensions",
            code="damaged-file",
        )
    shape = struct.unpack(f">{rank}I", content[4:header])
    # Not NumPy's product, which dimensions of an invalid header could overflow.
    expected = header + math.prod(shape)
    if len(content) != expected or min(shape) < 1:
        raise DataError(
            f"{path}: got {len(content)} bytes, expected {expected} for shape {list(shape)}, and "
            "no dimension of 0",
            code="damaged-file",
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
