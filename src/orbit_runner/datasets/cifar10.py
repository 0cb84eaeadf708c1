"""CIFAR-10, binary version."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orbit_runner.data.files import data_folder, download_hint
from orbit_runner.data.images.dataset import ImageArrays
from orbit_runner.errors import DataError

_SUBFOLDER = "cifar-10-batches-bin"
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_FILES = {"train": _TRAIN, "test": ("test_batch.bin",), "all": (*_TRAIN, "test_batch.bin")}
_SIDE = 32
_CHANNELS = 3
_RECORD = 1 + _CHANNELS * _SIDE**2
# Mean and standard deviation of each channel over the 50,000 training images, in units of 0 to 255.
_MEAN = tuple(255 * value for value in (0.4914, 0.4822, 0.4465))
_STD = tuple(255 * value for value in (0.2470, 0.2435, 0.2616))


def load(*, split: str, data_dir: str = "") -> ImageArrays:
    """Returns CIFAR-10: `image` uint8 [n, 32, 32, 3] and `label` int32 [n].

    A record is a label byte and 3,072 pixel bytes, one channel after the other. `split` is `train`,
    `test` or `all`. `data_dir` contains `data_batch_1.bin` and the others, or their directory.

    Raises `DataError` if a file is missing or invalid.
    """
    files = _find_files(split, data_dir)
    records = [_read_records(path) for path in files]
    image = np.empty((sum(map(len, records)), _SIDE, _SIDE, _CHANNELS), np.uint8)
    start = 0
    for part in records:
        pixels = part[:, 1:].reshape(-1, _CHANNELS, _SIDE, _SIDE)
        # Three times as fast as a single copy of the transposed pixels.
        for channel in range(_CHANNELS):
            image[start : start + len(part), ..., channel] = pixels[:, channel]
        start += len(part)
    label = np.concatenate([part[:, 0] for part in records]).astype(np.int32)
    return ImageArrays(
        name="cifar10",
        arrays={"image": image, "label": label},
        num_classes=10,
        mean=_MEAN,
        std=_STD,
        files=tuple(files),
    )


def _find_files(split: str, data_dir: str) -> list[Path]:
    hint = download_hint("cifar10", data_dir=data_dir)
    above = data_folder("cifar10", data_dir, hint)
    directory = above / _SUBFOLDER if (above / _SUBFOLDER).is_dir() else above
    missing = [name for name in _FILES[split] if not (directory / name).is_file()]
    if missing:
        raise DataError(
            f"cifar10: no {', '.join(missing)} in {directory}; {hint}", code="missing-file"
        )
    return [directory / name for name in _FILES[split]]


def _read_records(path: Path) -> np.ndarray:
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})", code="unreadable-file") from None
    if not len(content) or len(content) % _RECORD:
        raise DataError(
            f"{path}: got {len(content)} bytes, expected records of {_RECORD} bytes, so record "
            f"{len(content) // _RECORD} is incomplete",
            code="damaged-file",
        )
    records = content.reshape(-1, _RECORD)
    if records[:, 0].max() > 9:
        number = int(np.argmax(records[:, 0] > 9))
        raise DataError(
            f"{path}: got label {records[number, 0]} in record {number}, expected 0 to 9",
            code="bad-record",
        )
    return records
