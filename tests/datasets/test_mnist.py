from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from orbit_runner.datasets import mnist
from orbit_runner.errors import DataError

_NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "t10k": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def _idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def _arrays(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (size, 28, 28)), random.integers(0, 10, size)


def _write(folder, prefix, size, seed, rename=lambda name: name):
    arrays = _arrays(size, seed)
    for name, array in zip(_NAMES[prefix], arrays, strict=True):
        path = folder / rename(name)
        path.write_bytes(gzip.compress(_idx(array)) if path.suffix == ".gz" else _idx(array))
    return arrays


@pytest.fixture
def folder(tmp_path):
    _write(tmp_path, "train", 5, 1)
    _write(tmp_path, "t10k", 3, 2)
    return tmp_path


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name,
        lambda name: f"{name}.gz",
        lambda name: name.replace("-idx", ".idx"),
        lambda name: name.replace("-idx", ".idx") + ".gz",
    ],
)
def test_files_are_found_under_alternative_names(tmp_path, rename):
    image, label = _write(tmp_path, "train", 5, 1, rename)
    source = mnist.load(split="train", data_dir=str(tmp_path))
    np.testing.assert_array_equal(source.arrays["image"][..., 0], image)
    np.testing.assert_array_equal(source.arrays["label"], label)
    assert source.arrays["image"].dtype == np.uint8
    assert source.arrays["label"].dtype == np.int32
    assert source.mean == pytest.approx((33.3285,))


def test_splits_load_the_matching_files(folder):
    train, test, both = (
        mnist.load(split=split, data_dir=str(folder)).arrays["label"]
        for split in ("train", "test", "all")
    )
    np.testing.assert_array_equal(train, _arrays(5, 1)[1])
    np.testing.assert_array_equal(test, _arrays(3, 2)[1])
    np.testing.assert_array_equal(both, np.concatenate([train, test]))


def test_input_path_overrides_the_default_files(folder):
    source = mnist.load(split="train", data_dir=str(folder), input_path=_NAMES["t10k"])
    np.testing.assert_array_equal(source.arrays["label"], _arrays(3, 2)[1])


def _cut(content: bytes) -> bytes:
    return content[:-1]


def _lengthened(content: bytes) -> bytes:
    return content + b"\0"


def _signed(content: bytes) -> bytes:
    return content[:2] + b"\x09" + content[3:]


def _huge(content: bytes) -> bytes:
    return content[:4] + b"\xff" * 12 + content[16:]


@pytest.mark.parametrize(
    ("file", "mangle", "message"),
    [
        (0, _cut, "got 3935 bytes, expected 3936"),
        (0, _lengthened, "got 3937 bytes, expected 3936"),
        (1, _cut, "got 12 bytes, expected 13"),
        (1, _lengthened, "got 14 bytes, expected 13"),
        (0, _signed, "starts with 0x00000903, expected 0x00000803"),
        (1, _signed, "starts with 0x00000901, expected 0x00000801"),
        (0, lambda content: b"", "starts with 0x, expected"),
        (0, lambda content: content[:10], "got 10 bytes, expected at least 16"),
        (0, _huge, f"expected {(2**32 - 1) ** 3 + 16} for shape"),
        (0, lambda content: _idx(np.zeros((0, 28, 28))), "expected no dimension of 0"),
        (1, lambda content: _idx(np.zeros(4)), "got 4 labels, expected 5"),
        (1, lambda content: _idx(np.array([1, 2, 10, 10, 9])), "got label 10 in record 2"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_corrupt_idx_file_is_rejected(folder, file, mangle, message, zipped):
    path = folder / _NAMES["train"][file]
    content = mangle(path.read_bytes())
    path.unlink()
    path = path.with_name(f"{path.name}.gz") if zipped else path
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError, match=message) as caught:
        mnist.load(split="train", data_dir=str(folder))
    assert str(path) in str(caught.value)
    assert caught.value.field == "data_dir"


@pytest.mark.parametrize(
    "mangle", [_cut, lambda content: b"no gzip", lambda content: content[:40] + b"\0" * 40]
)
def test_corrupt_gzip_file_is_rejected(folder, mangle):
    path = folder / f"{_NAMES['train'][0]}.gz"
    path.write_bytes(mangle(gzip.compress(_idx(_arrays(5, 1)[0]))))
    path.with_suffix("").unlink()
    with pytest.raises(DataError, match=r"ubyte\.gz: cannot be read"):
        mnist.load(split="train", data_dir=str(folder))


@pytest.mark.parametrize("name", [*_NAMES["train"], *_NAMES["t10k"]])
def test_missing_file_is_reported_with_directory_and_download_command(folder, name):
    (folder / name).unlink()
    with pytest.raises(
        DataError, match=f"no {name}.*`runner data get mnist --dir={folder}`"
    ) as caught:
        mnist.load(split="all", data_dir=str(folder))
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        (
            {"data_dir": ""},
            "data_dir",
            "no directory is set; to download the dataset, run "
            "`runner data get mnist --dir=data/mnist`",
        ),
        (
            {"data_dir": "/no/such"},
            "data_dir",
            "directory /no/such not found; to download the dataset, run `runner data get",
        ),
        ({"data_dir": "", "split": "dev"}, "split", "got split 'dev', expected one of train, test"),
        ({"input_path": ["x-images"]}, "input_path", "no file matches .*x-images"),
        ({"input_path": ["train-*"] * 2}, "input_path", "is listed twice"),
        ({"input_path": ["train-images*"]}, "input_path", "got 1 files, expected 2"),
        ({"input_path": ["t10k-l*", "t10k-i*"]}, "input_path", "rank 3"),
    ],
)
def test_invalid_settings_are_rejected(folder, settings, field, message):
    with pytest.raises(DataError, match=message) as caught:
        mnist.load(**{"split": "train", "data_dir": str(folder), **settings})
    assert caught.value.field == field


def test_splits_with_different_image_sizes_are_rejected(folder):
    (folder / _NAMES["t10k"][0]).write_bytes(_idx(np.zeros((3, 8, 8))))
    with pytest.raises(DataError, match=r"\(8, 8\), \(28, 28\)"):
        mnist.load(split="all", data_dir=str(folder))


def test_fashion_mnist_directory_suggests_its_download_command():
    with pytest.raises(DataError, match="runner data get fashion_mnist --dir=data/fashion_x"):
        mnist.load(split="train", data_dir="data/fashion_x")
