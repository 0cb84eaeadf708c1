"""Datasets prepared by TensorFlow Datasets: versions, splits, and errors."""

import pytest

from orbit_runner.data.tfds import load
from orbit_runner.errors import DataError
from tests.support.images import photo, write_tfds
from tests.support.problems import raises
from tests.support.tfds import TEXT, features_json

_SIZES = (70, 3, 130)


@pytest.fixture
def folder(tmp_path, own_cache):
    write_tfds(tmp_path, "toy", {"train": _SIZES, "test": (4,)}, ["a", "b", "c"])
    return tmp_path


def test_default_split_falls_back_to_test_without_validation(folder):
    source = load(tfds_name="toy", default_splits=("validation", "test"), tfds_data_dir=str(folder))
    assert (source.size, source.labels) == (4, ("a", "b", "c"))
    assert source.image_shape == photo(0).shape


def test_tfds_directory_is_read_from_the_environment(folder, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder))
    assert load(tfds_name="toy").size == 203


@pytest.mark.parametrize(
    ("settings", "field", "part"),
    [
        ({"tfds_name": "other"}, "tfds_name", "tfds build other --data_dir="),
        ({"tfds_data_dir": "/nowhere"}, "tfds_data_dir", "no prepared dataset toy in /nowhere"),
        ({"tfds_split": "val"}, "tfds_split", "got split 'val', expected test, train"),
        (
            {"tfds_split": "train+test"},
            "tfds_split",
            "got split 'train+test', expected test, train",
        ),
        ({"tfds_split": "train[:50%]"}, "tfds_split", "for a part of one, set task.split"),
    ],
)
def test_invalid_tfds_settings_are_rejected(folder, settings, field, part):
    with pytest.raises(DataError) as caught:
        load(**{"tfds_name": "toy", "tfds_data_dir": str(folder), **settings})
    assert part in str(caught.value)
    assert caught.value.field == field


def test_incomplete_files_or_unsupported_formats_are_rejected(folder):
    place = folder / "toy" / "1.0.0"
    info = (place / "dataset_info.json").read_text()
    (place / "dataset_info.json").write_text(info.replace('"tfrecord"', '"riegeli"'))
    with raises("not-supported"):
        load(tfds_name="toy", tfds_data_dir=str(folder))
    (place / "dataset_info.json").write_text(info)
    shard = next(place.glob("*train*00002-of-00003"))
    shard.write_bytes(shard.read_bytes()[:-5])
    with raises("damaged-file"):
        load(tfds_name="toy", tfds_data_dir=str(folder))
    (place / "features.json").write_text(features_json({"text": TEXT}))
    with raises("bad-data"):
        load(tfds_name="toy", tfds_data_dir=str(folder))
