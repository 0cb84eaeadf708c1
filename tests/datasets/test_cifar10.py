import numpy as np
import pytest

from orbit_runner.datasets import cifar10
from tests.support.problems import raises

_TRAIN = [f"data_batch_{number}.bin" for number in range(1, 6)]
_ALL = [*_TRAIN, "test_batch.bin"]


def _records(name):
    number = _ALL.index(name)
    random = np.random.default_rng(number)
    records = random.integers(0, 256, (number + 2, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    return records


def _images(names):
    planes = np.concatenate([_records(name)[:, 1:] for name in names]).reshape(-1, 3, 32, 32)
    return np.stack([planes[:, channel] for channel in range(3)], axis=-1)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in _ALL:
        _records(name).tofile(folder / name)
    return folder


@pytest.mark.parametrize(("split", "names"), [("train", _TRAIN), ("test", _ALL[5:]), ("all", _ALL)])
def test_split_loads_its_batch_files(folder, tmp_path, split, names):
    source = cifar10.load(split=split, data_dir=str(tmp_path))
    same = cifar10.load(split=split, data_dir=str(folder))
    np.testing.assert_array_equal(source.arrays["image"], _images(names))
    np.testing.assert_array_equal(same.arrays["image"], source.arrays["image"])
    labels = np.concatenate([_records(name)[:, 0] for name in names])
    np.testing.assert_array_equal(source.arrays["label"], labels)
    assert source.arrays["image"].dtype == np.uint8
    assert source.arrays["image"].flags.c_contiguous
    assert source.arrays["label"].dtype == np.int32
    assert source.mean == pytest.approx((125.3, 123.0, 113.9), abs=0.1)


def test_all_missing_files_are_reported(folder, tmp_path):
    (folder / _TRAIN[1]).unlink()
    (folder / _TRAIN[4]).unlink()
    with raises("missing-file") as caught:
        cifar10.load(split="train", data_dir=str(tmp_path))
    assert str(folder) in str(caught.value)
    assert f"to download the dataset, run `runner data get cifar10 --dir={tmp_path}`" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "damaged-file"),
        (b"\0" * 6147, "damaged-file"),
        (b"\0" * 3073 + b"\x0a" + b"\0" * 3072, "bad-record"),
    ],
)
def test_corrupt_batch_file_is_rejected(folder, tmp_path, content, code):
    path = folder / "test_batch.bin"
    path.write_bytes(content)
    with raises(code) as caught:
        cifar10.load(split="test", data_dir=str(tmp_path))
    assert str(path) in str(caught.value)
    assert caught.value.field == "data_dir"
