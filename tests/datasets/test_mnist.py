import gzip
import struct

import numpy as np
import pytest

from orbit_runner.datasets import mnist
from tests.support.problems import raises

_NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "t10k": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def _idx(array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def _arrays(size, seed):
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


@pytest.mark.parametrize(
    ("file", "mangle", "code"),
    [
        (1, lambda content: content + b"\0", "damaged-file"),
        (0, lambda content: content[:2] + b"\x09" + content[3:], "damaged-file"),
        (0, lambda content: content[:4] + b"\xff" * 12 + content[16:], "damaged-file"),
        (0, lambda content: _idx(np.zeros((0, 28, 28))), "damaged-file"),
        (1, lambda content: _idx(np.zeros(4)), "data-mismatch"),
        (1, lambda content: _idx(np.array([1, 2, 10, 10, 9])), "bad-record"),
    ],
)
def test_corrupt_idx_file_is_rejected(folder, file, mangle, code):
    path = folder / _NAMES["train"][file]
    path.write_bytes(mangle(path.read_bytes()))
    with raises(code) as caught:
        mnist.load(split="train", data_dir=str(folder))
    assert str(path) in str(caught.value)
    assert caught.value.field == "data_dir"


@pytest.mark.parametrize("mangle", [lambda content: content[:-1], lambda content: b"no gzip"])
def test_corrupt_gzip_file_is_rejected(folder, mangle):
    path = folder / f"{_NAMES['train'][0]}.gz"
    path.write_bytes(mangle(gzip.compress(_idx(_arrays(5, 1)[0]))))
    path.with_suffix("").unlink()
    with raises("unreadable-file"):
        mnist.load(split="train", data_dir=str(folder))


@pytest.mark.parametrize(
    ("settings", "field", "code"),
    [
        ({"data_dir": ""}, "data_dir", "not-set"),
        ({"data_dir": "/no/such"}, "data_dir", "missing-file"),
    ],
)
def test_invalid_settings_are_rejected(folder, settings, field, code):
    with raises(code) as caught:
        mnist.load(**{"split": "train", "data_dir": str(folder), **settings})
    assert caught.value.field == field


def test_missing_file_and_different_image_sizes_are_rejected(folder):
    (folder / _NAMES["t10k"][0]).write_bytes(_idx(np.zeros((3, 8, 8))))
    with raises("data-mismatch"):
        mnist.load(split="all", data_dir=str(folder))
    (folder / _NAMES["t10k"][1]).unlink()
    with raises("missing-file") as caught:
        mnist.load(split="all", data_dir=str(folder))
    assert f"runner data get mnist --dir={folder}" in str(caught.value)
