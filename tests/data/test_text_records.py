from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.text import synthetic, token_cache
from orbit_runner.data.text.record_writer import write_token_records
from orbit_runner.data.text.source import EOS, PairSource, Ragged
from orbit_runner.data.text.token_records import load
from orbit_runner.errors import DataError
from tests.support.problems import raises
from tests.support.sentences import token_pairs
from tests.support.tfrecords import ints, write_file

pytestmark = pytest.mark.usefixtures("own_cache")


def _example(**features):
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def _write(folder, source, files=3):
    """Writes the pairs as TensorFlow does, split among files."""
    records = [
        _example(inputs=ints(*source.sources.row(k)), targets=ints(*source.targets.row(k)))
        for k in range(source.size)
    ]
    parts = np.array_split(np.arange(source.size), files)
    for number, part in enumerate(parts):
        write_file(folder / f"train-{number}", [records[k] for k in part])


def _load(folder, **settings):
    given = {"vocab_size": 40_000, "max_length": 100, "is_training": True}
    return load(data_dir=str(folder), input_path=("train-*",), **{**given, **settings})


def _assert_same(rows, expected):
    np.testing.assert_array_equal(rows.offsets, expected.offsets)
    np.testing.assert_array_equal(rows.values, expected.values)


@pytest.mark.parametrize("size", [1, 63, 300])
def test_pairs_written_by_tensorflow_are_read(tmp_path, size):
    # Ids of one, two and three bytes.
    source = token_pairs(size)
    for rows in (source.sources, source.targets):
        rows.values[rows.values > 2] *= 100
    _write(tmp_path, source, files=min(3, size))
    found = _load(tmp_path)
    _assert_same(found.sources, source.sources)
    _assert_same(found.targets, source.targets)
    assert found.references is None
    assert found.vocab_size == 40_000


def test_tensorflow_reads_written_token_records(tmp_path):
    source = token_pairs(100)
    path = tmp_path / "made" / "train-0"
    write_token_records(source, path)
    spec = tf.io.VarLenFeature(tf.int64)
    for number, record in enumerate(tf.data.TFRecordDataset(str(path))):
        found = tf.io.parse_single_example(record, {"inputs": spec, "targets": spec})
        np.testing.assert_array_equal(found["inputs"].values, source.sources.row(number))
        np.testing.assert_array_equal(found["targets"].values, source.targets.row(number))
    assert number == 99
    again = _load(tmp_path / "made")
    _assert_same(again.sources, source.sources)


def test_long_pairs_are_skipped_in_training_and_cut_in_evaluation(tmp_path, capsys):
    source = token_pairs(200)
    _write(tmp_path, source)
    keep = source.lengths <= 30
    found = _load(tmp_path, max_length=30)
    _assert_same(found.targets, source.targets.select(keep))
    assert found.left_out["longer than 30 tokens"] == (~keep).sum() > 0
    assert "skipped: " in capsys.readouterr().err
    cut = _load(tmp_path, max_length=30, is_training=False)
    assert cut.size == 200
    assert cut.lengths.max() == 30


def test_ids_are_cached(tmp_path, monkeypatch):
    monkeypatch.setattr(token_cache, "_KEPT_SECONDS", -1.0)
    source = token_pairs(50)
    _write(tmp_path, source)
    _load(tmp_path)
    monkeypatch.setattr("orbit_runner.data.text.token_records._read_sides", None)
    _assert_same(_load(tmp_path).targets, source.targets)


def test_unpacked_integer_lists_are_read(tmp_path):
    def single(*values):
        # Field 3 of the feature contains field 1 repeatedly, each time with wire type 0.
        inner = b"".join(b"\x08" + bytes([value]) for value in values)
        return tf.train.Feature.FromString(b"\x1a" + bytes([len(inner)]) + inner)

    packed = _example(inputs=ints(5, 6, 1), targets=ints(7, 1))
    entry = b"\x0a\x06inputs\x12\x08\x1a\x06\x08\x05\x08\x06\x08\x01"
    other = b"\x0a\x07targets\x12\x06\x1a\x04\x08\x07\x08\x01"
    body = b"".join(b"\x0a" + bytes([len(part)]) + part for part in (entry, other))
    raw = b"\x0a" + bytes([len(body)]) + body
    assert tf.train.Example.FromString(raw) == tf.train.Example.FromString(packed)
    assert single(5, 6, 1) == ints(5, 6, 1)
    write_file(tmp_path / "train-0", [raw, packed])
    found = _load(tmp_path)
    assert found.sources.values.tolist() == [5, 6, 1, 5, 6, 1]
    assert found.targets.values.tolist() == [7, 1, 7, 1]


_GOOD = _example(inputs=ints(5, 1), targets=ints(6, 1))
_FLOATS = tf.train.Feature(float_list=tf.train.FloatList(value=[1.0]))


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (_example(inputs=ints(5, 1)), "input_path"),
        (_example(inputs=ints(5, 1), targets=_FLOATS), "input_path"),
        (_example(inputs=ints(5, 1), targets=ints(6, 7)), "input_path"),
        (_example(inputs=ints(), targets=ints(6, 1)), "input_path"),
        (_example(inputs=ints(5, 1, 0), targets=ints(6, 1)), "input_path"),
        (_example(inputs=ints(5, -3, 1), targets=ints(6, 1)), "input_path"),
        (_example(inputs=ints(5, 2**40, 1), targets=ints(6, 1)), "input_path"),
        (_example(inputs=ints(5, 2**32 + 5, 1), targets=ints(6, 1)), "input_path"),
        (_example(inputs=ints(5, 100, 1), targets=ints(6, 1)), "vocab_size"),
        (b"\xff\xff\xff", "input_path"),
    ],
)
def test_invalid_token_records_are_rejected_with_their_location(tmp_path, record, field):
    write_file(tmp_path / "train-0", [_GOOD] * 5)
    write_file(tmp_path / "train-1", [_GOOD, _GOOD, record, _GOOD])
    with raises("bad-record") as caught:
        _load(tmp_path, vocab_size=100)
    assert caught.value.field == field


def test_first_record_of_a_file_is_located_in_it(tmp_path):
    write_file(tmp_path / "train-0", [_GOOD] * 5)
    bad = _example(inputs=ints(5, 100, 1), targets=ints(6, 1))
    path = write_file(tmp_path / "train-1", [bad, _GOOD])
    with pytest.raises(DataError, match=f"{path}: record 0 at byte 0: inputs: got id 100"):
        _load(tmp_path, vocab_size=100)


def test_missing_empty_or_truncated_files_are_rejected(tmp_path):
    with raises("missing-file") as caught:
        _load(tmp_path)
    assert caught.value.field == "input_path"
    path = write_file(tmp_path / "train-0", [])
    with raises("empty-data"):
        _load(tmp_path)
    content = write_file(path, [_GOOD] * 5).read_bytes()
    path.write_bytes(content[:-7])
    with raises("damaged-file"):
        _load(tmp_path)
    with raises("not-set"):
        load(vocab_size=10, max_length=10, is_training=True)
    with raises("unknown-part") as caught:
        _load(tmp_path, split="train")
    assert caught.value.field == "split"


@pytest.mark.parametrize("kind", ["random", "constant"])
def test_synthetic_sentences_respect_their_settings(kind):
    settings = {"num_examples": 500, "vocab_size": 50, "max_length": 20, "kind": kind}
    source = synthetic.load(seed=3, **settings)
    assert source.size == 500
    for rows in (source.sources, source.targets):
        assert (rows.values[rows.offsets[1:] - 1] == EOS).all()
        inner = np.delete(rows.values, rows.offsets[1:] - 1)
        assert inner.min() == 3
        assert inner.max() == (49 if kind == "random" else 3)
        assert rows.lengths.max() == 20
        assert rows.lengths.min() == (2 if kind == "random" else 20)
        assert rows.values.dtype == np.int32
    _assert_same(synthetic.load(seed=3, **settings).targets, source.targets)
    other = synthetic.load(seed=4, **settings)
    assert np.array_equal(other.targets.values, source.targets.values) == (kind == "constant")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"kind": "odd"}, "synthetic"),
        ({"num_examples": 0}, "synthetic"),
        ({"vocab_size": 3}, "vocab_size"),
        ({"max_length": 1}, "max_length"),
    ],
)
def test_invalid_synthetic_settings_are_rejected(settings, field):
    with raises("out-of-range") as caught:
        synthetic.load(**{"num_examples": 5, "vocab_size": 50, "max_length": 20, **settings})
    assert caught.value.field == field


def test_empty_token_list_is_rejected(tmp_path):
    source = PairSource("made", Ragged.from_rows([[], [5, 1]]), Ragged.from_rows([[1], [1]]), 9)
    write_token_records(source, tmp_path / "train-0")
    with raises("bad-record"):
        _load(tmp_path)
