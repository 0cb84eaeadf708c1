"""MNIST, and other datasets in its format such as Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.files import check_split, data_folder, download_hint, named_files
from orbit_runner.data.source import ArraySource
from orbit_runner.datasets.idx import read_idx
from orbit_runner.errors import DataError

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
            f"mnist: got images of {sorted(shapes)} pixels in {data_dir}, expected one size"
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
        folder = data_folder("mnist", data_dir, _hint(data_dir))
        return [
            (_find(folder, f"{prefix}-images", 3), _find(folder, f"{prefix}-labels", 1), "data_dir")
            for prefix in _PREFIXES[split]
        ]
    files = named_files("mnist", data_dir, input_path)
    if len(files) != 2:
        raise DataError(
            f"mnist: got {len(files)} files, expected 2: the images and the labels",
            field="input_path",
        )
    return [(files[0], files[1], "input_path")]


def _find(folder: Path, stem: str, rank: int) -> Path:
    names = [f"{stem}{mark}idx{rank}-ubyte{end}" for mark in "-." for end in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"mnist: no {names[0]} (or .gz) in {folder}; {_hint(str(folder))}")


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
        )
    if label.max() > 9:
        record = int(np.argmax(label > 9))
        raise DataError(
            f"{labels}: got label {label[record]} in record {record}, expected 0 to 9", field=field
        )
    return image, label
