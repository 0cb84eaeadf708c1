"""ArrayRecord files: records by index, batches as a function of (seed, step), and bad records."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data import array_record as array_files
from orbit_runner.data.array_record import ArrayRecordFiles, load
from orbit_runner.data.images.decode_errors import BadImages
from orbit_runner.data.images.pipeline import eval_images, train_images
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.tfds import load as load_tfds
from orbit_runner.errors import DataError
from tests.support.array_records import write_array_file
from tests.support.images import GARBAGE, write_tfds
from tests.support.problems import raises
from tests.support.tfrecords import SHAPE, SIZES, example, pixels, write_set

COUNT = sum(SIZES)


@pytest.fixture
def folder(tmp_path):
    write_set(tmp_path, write=write_array_file)
    return tmp_path


def _stored(number, label=None):
    encoded = tf.io.encode_png(pixels(number)).numpy()
    return example(encoded, number if label is None else label)


def open_set(folder, **settings):
    return load(**{"data_dir": str(folder), "input_path": ["train-*"], **settings})


@pytest.mark.parametrize("offset", [0, 3])
def test_labels_in_records_are_read_when_they_are_asked_for(folder, offset):
    source = open_set(folder, label_offset=offset)
    assert not source.has_labels
    rows = np.array([0, 69, 70, 200])
    assert source.class_numbers().tolist() == [*range(-offset, COUNT - offset)]
    assert source.select(rows).class_numbers().tolist() == (rows - offset).tolist()
    assert source.label(70) == 70 - offset


def test_records_are_read_by_index_through_all_files(folder):
    source = open_set(folder)
    assert (source.size, source.image_shape) == (COUNT, SHAPE)
    assert source.record_files.counts == SIZES
    numbers = [0, 69, 70, 71, 134, 269, 5, 5, 269]
    stored = [_stored(number) for number in numbers]
    assert source.read(numbers) == stored
    file, record = source.places.locate(np.array([69, 70, 71, 135]))
    assert (file.tolist(), record.tolist()) == ([0, 1, 3, 4], [69, 0, 0, 0])


def test_more_files_than_may_be_open_are_read(folder, monkeypatch):
    monkeypatch.setattr(array_files, "_OPEN_FILES", 2)
    source = open_set(folder)
    expected = open_set(folder)
    for numbers in ([0, 70, 80, 200, 269, 1], [269, 0]):
        assert source.read(numbers) == expected.read(numbers)
    assert len(source.record_files._readers) == 2


def _flip(path, text):
    content = bytearray(path.read_bytes())
    content[content.index(text)] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: b"no example", "record 4: is not a tf.Example"),
        (lambda: _stored(1, label=77), "record 4: got label 77, expected 0 to 6"),
        (lambda: example(GARBAGE["garbage"], 1), "record 4: cannot be decoded; set task."),
    ],
)
def test_bad_records_are_named(tmp_path, make, message):
    good = [_stored(number) for number in range(7)]
    path = write_array_file(tmp_path / "train-0", [*good[:4], make(), *good[5:]])
    images = eval_images(
        open_set(tmp_path), shape=SHAPE, resize=False, global_batch_size=7, num_classes=7,
        bad=BadImages("validation_data", 0),
    )  # fmt: skip
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(images)
    assert f"{path}: {message}" in str(caught.value)


def test_damaged_files_are_named(tmp_path):
    noise = [np.random.default_rng(n).bytes(3000) for n in range(40)]
    path = write_array_file(tmp_path / "train-0", noise)
    _flip(path, noise[17][100:200])
    records = ArrayRecordFiles([path])
    assert records.read(0, [16, 18]) == [noise[16], noise[18]]
    with raises("damaged-file"):
        records.read(0, [3, 17, 5])
    assert records.read(0, [3]) == [noise[3]]
    for content in (path.read_bytes()[:100_000], b"", b"x" * 70_000):
        path.write_bytes(content)
        with raises("damaged-file"):
            ArrayRecordFiles([path])
    with raises("damaged-file"):
        ArrayRecordFiles([tmp_path / "gone"])


def test_feature_that_the_records_lack_is_named(folder):
    with pytest.raises(DataError, match="train-00: record 0: got features image/class") as caught:
        open_set(folder, label_field_key="label")
    assert caught.value.field == "input_path"


def test_empty_files_are_rejected(tmp_path):
    write_array_file(tmp_path / "train-0", [])
    with raises("empty-data"):
        open_set(tmp_path)


def test_tf_data_services_are_rejected(folder):
    with raises("not-supported"):
        train_images(
            open_set(folder), shape=SHAPE, resize=False, global_batch_size=12, seed=5,
            bad=BadImages("train_data", 0), options=PipelineOptions(services=("127.0.0.1:1",)),
        )  # fmt: skip


def test_missing_package_is_reported(folder, monkeypatch):
    array_files._reader_class.cache_clear()
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_module", None)
    with raises("missing-package") as caught:
        open_set(folder)
    assert "install it: pip install array_record" in str(caught.value)


def test_prepared_dataset_in_array_records(tmp_path, own_cache):
    sizes = {"train": (70, 3, 130)}
    write_tfds(tmp_path, "arrays", sizes, ["a", "b"], file_format="array_record")
    write_tfds(tmp_path, "records", sizes, ["a", "b"])

    source = load_tfds(tfds_name="arrays", tfds_data_dir=str(tmp_path))

    other = load_tfds(tfds_name="records", tfds_data_dir=str(tmp_path))
    assert (source.size, source.labels) == (other.size, other.labels) == (203, ("a", "b"))
