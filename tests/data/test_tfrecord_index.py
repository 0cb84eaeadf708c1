import gzip
import os

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.tfrecord import framing
from orbit_runner.data.tfrecord.framing import index_file, index_files, scan
from orbit_runner.data.tfrecord.source import load
from tests.support.problems import raises
from tests.support.tfrecords import SHAPE, SIZES, example, write_file, write_set

_GENERATOR = np.random.default_rng(0)


pytestmark = pytest.mark.usefixtures("own_cache")


def _some(count, largest=40):
    return [_GENERATOR.bytes(_GENERATOR.integers(0, largest)) for _ in range(count)]


@pytest.mark.parametrize(("count", "largest"), [(0, 1), (1, 40), (130, 1), (130, 50_000)])
def test_offsets_match_the_records_tensorflow_reads(tmp_path, count, largest):
    records = _some(count, largest)
    path = write_file(tmp_path / "some", records)
    index = scan(path)
    assert index.records == len(records) == len(list(tf.data.TFRecordDataset(str(path))))
    lengths = np.cumsum([0, *(len(record) + 16 for record in records)])
    np.testing.assert_array_equal(index.offsets, lengths)
    assert index.offsets.dtype == np.int64


def _flipped(place):
    return lambda content: content[:place] + bytes([content[place] ^ 64]) + content[place + 1 :]


@pytest.mark.parametrize(
    "mangle",
    [
        lambda content: content[:-1],
        lambda content: content[: 3 * 26 + 11],
        lambda content: content + b"\1",
        _flipped(26 * 66 + 6),
        gzip.compress,
    ],
)
def test_corrupt_file_is_rejected_with_the_byte_offset(tmp_path, mangle):
    path = write_file(tmp_path / "some", [bytes([k]) * 10 for k in range(70)])
    path.write_bytes(mangle(path.read_bytes()))
    with raises("damaged-file") as caught:
        index_file(path)
    assert caught.value.field == "input_path"


def test_unreadable_file_is_reported_with_its_path(tmp_path):
    with raises("unreadable-file") as caught:
        index_file(tmp_path / "gone")
    assert caught.value.field == "input_path"


@pytest.fixture
def scans(monkeypatch):
    scanned = []

    def counted(path):
        scanned.append(path.name)
        return scan(path)

    monkeypatch.setattr(framing, "scan", counted)
    return scanned


def _same(one, other):
    assert one.records == other.records
    np.testing.assert_array_equal(one.offsets, other.offsets)
    assert one.offsets.dtype == other.offsets.dtype


def test_file_is_scanned_once(here, scans):
    path = write_file(here / "some", _some(100))
    first = index_file(path)
    _same(index_file(path), first)
    _same(index_file(path.relative_to(here)), first)
    assert scans == ["some"]


def test_cached_offsets_of_many_files_keep_none_of_them_open(tmp_path):
    paths = [write_file(tmp_path / f"{number:03}", _some(3)) for number in range(80)]
    scanned = index_files(paths)
    before = len(os.listdir("/proc/self/fd"))
    cached = index_files(paths)
    assert len(os.listdir("/proc/self/fd")) < before + 20
    for one, other in zip(cached, scanned, strict=True):
        _same(one, other)


def test_source_lists_the_blocks_of_all_files(tmp_path):
    write_set(tmp_path)
    source = load(data_dir=str(tmp_path), input_path=["train-*"])
    assert (source.size, source.image_shape) == (sum(SIZES), SHAPE)
    blocks = source.blocks()
    np.testing.assert_array_equal(blocks.records, [64, 6, 1, 64, 64, 64, 2, 5])
    np.testing.assert_array_equal(blocks.first, [0, 64, 70, 71, 135, 199, 263, 265])
    np.testing.assert_array_equal(blocks.file, [0, 0, 1, 3, 4, 4, 4, 5])
    for file, path in enumerate(source.files):
        here = blocks.file == file
        assert blocks.length[here].sum() == path.stat().st_size
        ends = np.cumsum(blocks.length[here])
        np.testing.assert_array_equal(blocks.offset[here], ends - blocks.length[here])


def test_files_follow_the_order_of_input_path(tmp_path):
    paths = write_set(tmp_path)
    source = load(input_path=[str(paths[4]), str(tmp_path / "train-0[02]")])
    assert source.files == (paths[4], paths[0], paths[2])
    assert source.size == 200


@pytest.mark.parametrize(
    ("settings", "field", "code"),
    [
        ({"input_path": []}, "input_path", "empty-data"),
        ({"input_path": ["test-*"]}, "input_path", "missing-file"),
        ({"input_path": ["train-02"]}, "input_path", "empty-data"),
    ],
)
def test_settings_that_match_no_records_are_rejected(tmp_path, settings, field, code):
    write_set(tmp_path)
    with raises(code) as caught:
        load(**{"data_dir": str(tmp_path), "input_path": ["train-*"], **settings})
    assert caught.value.field == field


@pytest.mark.parametrize(
    "record",
    [
        b"no example",
        tf.train.Example().SerializeToString(),
        example(b"GIF89a", 1),
        example(b"", 1),
        example(b"\x89PNG\r\n\x1a\n\0", 1),
    ],
    # The bytes of an example, from which pytest would derive an id, differ between processes.
    ids=["no example", "no features", "a GIF", "an empty image", "a mangled PNG"],
)
def test_records_without_a_supported_image_are_rejected(tmp_path, record):
    path = write_file(tmp_path / "some", [record])
    with raises("bad-record") as caught:
        load(input_path=[str(path)])
    assert caught.value.field == "input_path"
