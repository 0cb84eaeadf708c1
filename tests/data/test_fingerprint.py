"""Fingerprints of datasets: what counts as a change, and what does not."""

import gzip

import numpy as np
import pytest

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.base import config_class, field
from orbit_runner.config.schema.data import DataConfig
from orbit_runner.config.schema.experiment import TaskConfig
from orbit_runner.config.schema.task_data import task_data
from orbit_runner.data.fingerprint import (
    DataDifference,
    DataFile,
    compare,
    describe_arrays,
)
from orbit_runner.run_directory.data_record import (
    DataRecord,
    fingerprint_of,
    inexact_data,
    read_record,
)
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from tests.support.problems import raises

SAME = DataDifference()
pytestmark = pytest.mark.usefixtures("own_cache")


def _rows(*rows):
    return {"train_data": [*rows]}


def _fingerprint(experiment, overrides):
    """Returns a fingerprint as another process would compute it."""
    task = resolve(Request(experiment=experiment, params_overrides=tuple(overrides))).config.task
    assert list(task_data(task).problems()) == []
    return fingerprint_of(task)


@pytest.mark.parametrize(
    ("before", "now", "change", "note"),
    [
        ([("a", 5, 1, "")], [("a", 6, 2, "")], "a: changed", ""),
        ([("a", 5, 1, "")], [("a", 5, 2, "")], "", "a: modified, "),
        ([("a", 5, 1, "")], [("a", 5, 1, "")], "", ""),
        ([("a", 5, 1, "k:1")], [("a", 5, 2, "k:1")], "", ""),
        ([("a", 5, 1, "k:1")], [("a", 5, 1, "k:2")], "a: changed", ""),
        ([("a", 5, 1, "k:1")], [("a", 9, 1, "k:1")], "", ""),
        ([("a", 5, 1, "k:1")], [("b", 5, 1, "k:1")], "", ""),
        ([("a", 5, 1, "k:1")], [("a", 5, 1, "other:2")], "", ""),
        ([("a", 5, 1, ""), ("b", 7, 1, "")], [("a", 5, 1, "")],
         "b: missing", ""),
        ([("a", 5, 1, "")], [("a", 5, 1, ""), ("b", 7, 1, "")], "b: new", ""),
        ([("a", 5, 1, ""), ("b", 5, 1, "")], [("b", 5, 1, ""), ("a", 5, 1, "")],
         "the same files in a different order", ""),
    ],
)  # fmt: skip
def test_compare_classifies_differences_as_changes_or_notes(before, now, change, note):
    comparison = compare(*(_rows(*(DataFile(*row) for row in rows)) for rows in (before, now)))
    for lines, expected in ((comparison.changes, change), (comparison.notes, note)):
        assert len(lines) == bool(expected)
        assert all(line.startswith(f"train_data: {expected}") for line in lines)


def test_only_sections_present_in_both_are_compared():
    row = DataFile("a", 1)
    assert compare({"train_data": [row]}, {"validation_data": [row]}) == SAME


def test_digest_of_arrays_depends_on_values_and_dtype():
    first, same, other, typed = (
        describe_arrays({"x": np.array(numbers)}) for numbers in ([1, 2], [1, 2], [1, 3], [1.0, 2])
    )
    assert first == same
    assert len({rows[0].digest for rows in (first, other, typed)}) == 3


def _both(*settings):
    sections = ("train_data", "validation_data")
    return [f"task.{section}.{setting}" for section in sections for setting in settings]


def test_compressed_text_has_the_fingerprint_of_the_plain_one(tmp_path):
    names = ("train.en", "train.de", "val.en", "val.de")
    for name in names:
        (tmp_path / name).write_text("one line\nand another\n")
    overrides = [
        *_both("source=parallel_text"),
        f"task.train_data.input_path=[{tmp_path}/train.en, {tmp_path}/train.de]",
        f"task.validation_data.input_path=[{tmp_path}/val.en, {tmp_path}/val.de]",
    ]
    before = _fingerprint("transformer_multi30k", overrides)
    (tmp_path / "train.de").write_bytes(gzip.compress((tmp_path / "train.de").read_bytes()))

    assert compare(before, _fingerprint("transformer_multi30k", overrides)).changes == ()


def test_default_fingerprint_covers_files_from_data_settings(tmp_path):
    for name in ("train-0", "train-1", "words.txt"):
        (tmp_path / name).write_text(name)
    prepared = tmp_path / "some" / "1.0.0"
    prepared.mkdir(parents=True)
    (prepared / "some-test.tfrecord").write_text("records")
    task = TaskConfig(
        train_data=DataConfig(input_path=f"{tmp_path}/train-*"),
        validation_data=ImageDataConfig(
            tfds_name="some:1.0.0", tfds_data_dir=str(tmp_path), input_path="gs://not/here"
        ),
    )
    fingerprints = fingerprint_of(task)
    names = {section: [row.name for row in rows] for section, rows in fingerprints.items()}
    assert names == {
        "train_data": ["train-0", "train-1"],
        "validation_data": ["some-test.tfrecord"],
    }
    assert {row.digest for rows in fingerprints.values() for row in rows} == {""}


def test_task_itself_may_name_a_prepared_dataset(tmp_path):
    @config_class
    class OwnTask(TaskConfig):
        tfds_name: str = field("some:1.0.0", help="dataset")
        tfds_data_dir: str = field(str(tmp_path), help="its directory")

    (tmp_path / "some/1.0.0").mkdir(parents=True)
    (tmp_path / "some/1.0.0/some-test.tfrecord").touch()

    (rows,) = fingerprint_of(OwnTask()).values()
    assert [row.name for row in rows] == ["some-test.tfrecord"]


def test_data_record_round_trips_and_logs_changed_data_on_resume(tmp_path):
    first, second = _rows(DataFile("a", 5, 1, "k:1")), _rows(DataFile("a", 6, 2, "k:2"))
    DataRecord(tmp_path, first).write()
    assert read_record(tmp_path) == (first, [])
    changed = DataRecord(tmp_path, second)
    with raises("data-changed"):
        changed.check()
    changed.write(40)
    DataRecord(tmp_path, second).check()
    assert [change["step"] for change in read_record(tmp_path)[1]] == [40]
    assert inexact_data(tmp_path) == ["it resumed at step 40 with different data"]


@pytest.mark.parametrize("content", [b"{", b'{"format": 2}', b'{"format": 1, "sections": 3}'])
def test_damaged_data_record_is_reported_and_renamed(content, tmp_path):
    (tmp_path / "data.json").write_bytes(content)
    record = DataRecord(tmp_path, _rows(DataFile("a", 5)))
    record.check()
    (note,) = record.notes()
    assert note.startswith(f"{tmp_path / 'data.json'}: cannot be read")
    record.write()
    assert (tmp_path / "data.json.damaged").read_bytes() == content
    assert read_record(tmp_path) == (_rows(DataFile("a", 5)), [])
