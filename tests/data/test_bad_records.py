"""Bad TFRecord files in training and evaluation: the error gives the file, record and byte."""

import io

import pytest
import tensorflow as tf
from PIL import Image

from orbit_runner.cli.main import main
from orbit_runner.data.tfrecord.bad_record import add_offset, find_damaged_record
from orbit_runner.data.tfrecord.example import example_problem
from orbit_runner.data.tfrecord.framing import index_file
from tests.support.tfrecords import example, ints, pixels, write_file

SHAPE, BAD = (4, 4, 3), 37
CONFIG = """
task:
  name: image_classification
  model: {name: mlp, hidden_units: [4], num_classes: 10}
  train_data: {source: tfrecord, input_path: "{folder}/train-*", global_batch_size: 8}
  validation_data: {source: tfrecord, input_path: "{folder}/val-*", global_batch_size: 8}
trainer:
  train_steps: 25
  optimizer_config:
    optimizer: {type: sgd}
    learning_rate: {type: constant, constant: {learning_rate: 0.01}}
runtime: {distribution_strategy: one_device, seed: 1}
"""


def _png(number):
    """Returns a PNG file; made without TensorFlow, which must not start at import."""
    file = io.BytesIO()
    Image.fromarray(pixels(number, SHAPE)).save(file, "PNG")
    return file.getvalue()


PNG = _png(3)


def _bytes(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def _floats(*values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def _record(**features):
    named = {
        {"image": "image/encoded", "label": "image/class/label"}[name]: feature
        for name, feature in features.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=named)).SerializeToString()


GOOD = [example(_png(k), k % 10) for k in range(80)]
START = sum(16 + len(record) for record in GOOD[:BAD])


def _flip(at):
    def flip(path):
        content = bytearray(path.read_bytes())
        content[START + at] ^= 0xFF
        path.write_bytes(content)

    return flip


def _write(folder, name, bad):
    write_file(folder / f"{name}-0", GOOD[:70])
    records = [*GOOD[:BAD], bad, *GOOD[BAD + 1 :]] if isinstance(bad, bytes) else GOOD
    path = write_file(folder / f"{name}-1", records)
    if callable(bad):
        bad(path)
    return path


@pytest.fixture
def run(here, own_cache, capsys):
    """Runs the experiment on such files, which must fail, and returns the error message."""

    def run(*flags):
        (here / "some.yaml").write_text(CONFIG.replace("{folder}", str(here)))
        assert main(["run", "--experiment=some.yaml", "--model_dir=a", *flags]) == 2
        stderr = capsys.readouterr().err
        last = stderr[stderr.rindex("runner: ") :]
        assert len(last.splitlines()) < 10
        return last

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "bad", "flags", "expected"),
    [
        ("train", _flip(30), [], "the data do not match their checksum; the file is corrupted"),
        (
            "train",
            _record(image=_bytes(PNG[:-20]), label=ints(3)),
            [],
            "image/encoded cannot be decoded; set max_bad_images",
        ),
        (
            "val",
            _record(image=_bytes(PNG)),
            [],
            "got features image/encoded, expected image/encoded (bytes)",
        ),
        # Images of any size are read in another way.
        ("train", b"no example", ["--task.model.input_size=[8,8,3]"], "is not a tf.Example"),
    ],
    ids=["checksum", "cut image", "no label", "no example"],
)
def test_bad_record_ends_the_run_with_its_location(section, bad, flags, expected, run, tmp_path):
    for name in ("train", "val"):
        _write(tmp_path, name, bad if name == section else None)
    assert f"{section}-1: record {BAD} at byte {START}: {expected}" in run(*flags)


@pytest.mark.parametrize("record", [0, BAD, 79])
def test_first_damaged_record_of_a_file_is_found(record, tmp_path):
    path = write_file(tmp_path / "some", GOOD)
    assert find_damaged_record(path) == ""
    content = bytearray(path.read_bytes())
    starts = index_file(path).offsets
    content[starts[record] + 20] ^= 1
    path.write_bytes(content)
    assert f"{path}: record {record} at byte {starts[record]}: " in find_damaged_record(path)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (_record(image=_bytes(PNG), label=ints(1)), ""),
        (_record(image=_bytes(PNG), label=ints(1, 2)), "got 2 × int64"),
        (_record(image=_bytes(PNG), label=ints()), "got no value"),
        (_record(image=_floats(1, 2), label=ints(1)), "image/encoded: got 2 × float"),
        (b"", "got features (none)"),
        (b"\x0a\x05", "is not a tf.Example"),
    ],
)
def test_example_problem_describes_missing_or_mistyped_features(record, expected):
    problem = example_problem(record, {"image/encoded": "bytes", "image/class/label": "int64"})
    assert expected in problem
    assert bool(problem) == bool(expected)


def test_message_without_a_readable_record_is_unchanged(tmp_path):
    assert add_offset("some text: more") == "some text: more"
    message = f"{tmp_path / 'gone'}: record 3: got label 12"
    assert add_offset(message) == message
