"""MNIST, and other datasets in its format such as Fashion-MNIST."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.dataset import Reader
from orbit_runner.data.files import check_split, data_folder, download_hint, named_files
from orbit_runner.data.images.dataset import place_arguments
from orbit_runner.data.source import ArraySource
from orbit_runner.errors import DataError, format_count

_PREFIXES = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
# Mean and standard deviation of MNIST's training images, in units of 0 to 255, as in the MNIST
# example of https://github.com/pytorch/examples. Fashion-MNIST is brighter, but that does no harm.
_MEAN, _STD = (0.1307 * 255,), (0.3081 * 255,)


def load(*, split: str, data_dir: str = "", input_path: Sequence[str] = ()) -> ArraySource:
    """Returns arrays in MNIST's format: `image` uint8 [n, height, width, 1], `label` int32 [n].

    The files are IDX, plain or compressed with gzip. `split` is `train`, `test` or `all`.
    `data_dir` contains `train-images-idx3-ubyte` and the others; names with `.idx3-ubyte` and `.gz`
    are found, too.

    `input_path` are the file of the images and the file of the labels to read instead; `split` is
    then ignored. Raises `DataError` if a file is missing or invalid.
    """
    check_split("mnist", split)
    pairs = _find_pairs(split, data_dir, input_path)
    parts = [_read_pair(*pair) for pair in pairs]
    shapes = {image.shape[1:3] for image, _ in parts}
    if len(shapes) > 1:
        raise DataError(
            f"mnist: got images of {sorted(shapes)} pixels in {data_dir}, expected one size",
            code="data-mismatch",
        )
    return ArraySource(
        name="mnist",
        arrays={
            "image": np.concatenate([image for image, _ in parts])[..., np.newaxis],
            "label": np.concatenate([label for _, label in parts]).astype(np.int32),
        },
        num_classes=10,
        mean=_MEAN,
        std=_STD,
        files=tuple(path for images, labels, _ in pairs for path in (images, labels)),
    )


def _find_pairs(
    split: str, data_dir: str, input_path: Sequence[str]
) -> list[tuple[Path, Path, str]]:
    if not input_path:
        directory = data_folder("mnist", data_dir, _hint(data_dir))
        return [
            (
                _find(directory, f"{prefix}-images", 3),
                _find(directory, f"{prefix}-labels", 1),
                "data_dir",
            )
            for prefix in _PREFIXES[split]
        ]
    files = named_files("mnist", data_dir, input_path)
    if len(files) != 2:
        raise DataError(
            f"mnist: got {format_count(len(files), 'file')}, expected 2: the images and the labels",
            field="input_path",
            code="bad-data",
        )
    return [(files[0], files[1], "input_path")]


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


def _read_pair(images: Path, labels: Path, field: str) -> tuple[np.ndarray, np.ndarray]:
    image, label = read_idx(images, 3, field=field), read_idx(labels, 1, field=field)
    if len(image) != len(label):
        raise DataError(
            f"{labels}: got {len(label)} labels, expected {len(image)}, one per image in {images}",
            field=field,
            code="data-mismatch",
        )
    if label.max() > 9:
        record = int(np.argmax(label > 9))
        raise DataError(
            f"{labels}: got label {label[record]} in record {record}, expected 0 to 9",
            field=field,
            code="bad-record",
        )
    return image, label


def read_idx(path: Path, rank: int, *, field: str) -> np.ndarray:
    """Returns the values of an IDX file of bytes: read-only uint8 with `rank` dimensions.

    The format is that of http://yann.lecun.com/exdb/mnist: two zero bytes, 8 for unsigned bytes,
    the number of dimensions, each dimension as four bytes, then the values. A file whose name ends
    in `.gz` is decompressed.

    Raises a `DataError` that names the setting `field` if the file has another rank or size.
    """
    content = _read_content(path, field)
    header = 4 + 4 * rank
    magic = bytes((0, 0, 8, rank))
    if content[:4] != magic:
        raise DataError(
            f"{path}: starts with 0x{content[:4].hex()}, expected 0x{magic.hex()} (IDX, uint8, "
            f"rank {rank})",
            field=field,
            code="damaged-file",
        )
    if len(content) < header:
        raise DataError(
            f"{path}: got {len(content)} bytes, expected at least {header}",
            field=field,
            code="damaged-file",
        )
    shape = struct.unpack(f">{rank}I", content[4:header])
    return _parse_values(path, content, header, shape, field)


def _parse_values(
    path: Path, content: bytes, header: int, shape: tuple[int, ...], field: str
) -> np.ndarray:
    if min(shape) < 1:
        raise DataError(
            f"{path}: got shape {list(shape)}, expected no dimension of 0",
            field=field,
            code="damaged-file",
        )
    # Not NumPy's product, which dimensions of an invalid header could overflow.
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise DataError(
            f"{path}: got {len(content)} bytes, expected {expected} for shape {list(shape)}",
            field=field,
            code="damaged-file",
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read_content(path: Path, field: str) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read ({error})", field=field, code="unreadable-file"
        ) from None


MNIST = Reader(load, place_arguments)
