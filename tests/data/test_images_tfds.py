"""Datasets prepared by TensorFlow Datasets: versions, splits, slices of splits, and errors."""

import numpy as np
import pytest

from orbit_runner.data.order.sharding import replica_slices
from orbit_runner.data.tfds import load
from orbit_runner.data.tfrecord.pipeline import RecordReader
from orbit_runner.data.tfrecord.reader import RecordPlaces
from orbit_runner.errors import DataError
from tests.support.images import photo, write_tfds
from tests.support.problems import raises
from tests.support.tfds import TEXT, features_json

_SIZES = (70, 3, 130)


@pytest.fixture
def folder(tmp_path, own_cache):
    write_tfds(tmp_path, "toy", {"train": _SIZES, "test": (4,)}, ["a", "b", "c"])
    return tmp_path


def _numbers(source):
    """Returns the numbers of the records read, found by their contents, and their names."""
    slices = replica_slices(source.size, None)
    (batch,) = RecordReader(source).evaluation_columns(slices, 1)
    everything = load(
        tfds_name="toy", tfds_split="train", tfds_data_dir=str(source.files[0].parents[2])
    )
    (columns,) = RecordReader(everything).evaluation_columns(replica_slices(203, None), 1)
    places = {record: number for number, record in enumerate(columns["record"].numpy())}
    assert len(places) == 203
    names_of = RecordPlaces(source.files, source.places).names
    names = [name.decode().rsplit("tfrecord-", 1)[1] for name in names_of(batch["id"]).numpy()]
    return [places[record] for record in batch["record"].numpy()], names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "start", "stop"),
    [
        ("train[65:140]", 65, 140),
        ("train[-10%:-5%]", 183, 193),
        ("train[1shard:]", 70, 203),
    ],
)
def test_split_slice_reads_its_own_records(folder, split, start, stop):
    source = load(tfds_name="toy", tfds_split=split, tfds_data_dir=str(folder))
    assert source.size == stop - start
    numbers, names = _numbers(source)
    assert numbers == list(range(start, stop))
    firsts = np.cumsum([0, *_SIZES])
    file = int(np.searchsorted(firsts, start, side="right")) - 1
    assert names[0] == f"{file:05}-of-00003: record {start - firsts[file]}"


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
        ({"tfds_split": "train[100:9999]"}, "tfds_split", "incompatible with 203 examples"),
        ({"tfds_split": "train[50:50]"}, "tfds_split", "none of the 203 records"),
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
    (place / "dataset_info.json").write_text(info.replace('"70"', '"71"'))
    with raises("damaged-file"):
        load(tfds_name="toy", tfds_data_dir=str(folder))
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
