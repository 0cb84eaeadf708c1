"""`metrics.jsonl` and TensorBoard's files: what is in them, and at which steps."""

import json
from collections import defaultdict

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.train.records import Summaries, append_records
from orbit_runner.train.stop_requests import StoppedAtStep
from tests.support.toy import Notes, descent, records, run, toy_config


def _events(folder):
    events = defaultdict(dict)
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for raw in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(raw.numpy())
            for value in event.summary.value:
                events[value.tag][event.step] = float(tf.make_ndarray(value.tensor))
    return events


@pytest.mark.sample(1)
@pytest.mark.parametrize("steps_per_loop", [3, 100, "auto"])
def test_a_record_is_the_mean_over_its_interval(steps_per_loop, tmp_path):
    config = toy_config(
        trainer__train_steps=12,
        trainer__summary_interval=5,
        trainer__validation_interval=4,
        trainer__checkpoint_interval=7,
        trainer__steps_per_loop=steps_per_loop,
    )
    run(config, tmp_path)
    steps = descent(config, 12)
    train = records(tmp_path, "train")
    assert [record["step"] for record in train] == [5, 10, 12]
    for record, (start, end) in zip(train, [(0, 5), (5, 10), (10, 12)], strict=True):
        losses, errors = zip(*((loss, error) for _, loss, error in steps[start:end]), strict=True)
        np.testing.assert_allclose(record["training_loss"], np.mean(losses), rtol=1e-4)
        np.testing.assert_allclose(record["error"], np.mean(errors), rtol=1e-4)
        np.testing.assert_allclose(record["learning_rate"], 0.1)
        assert record["steps_per_second"] > 0
    validation = records(tmp_path, "validation")
    assert [record["step"] for record in validation] == [4, 8, 12]
    assert all(record["validation_examples"] == 20 for record in validation)
    assert all(record["time"] > 1.6e9 for record in [*train, *validation])


def test_tensorboard_files_contain_the_same_values_as_the_records(tmp_path):
    run(toy_config(trainer__validation_interval=10), tmp_path)
    for split, steps in (("train", [5, 10, 15, 20]), ("validation", [10, 20])):
        events = _events(tmp_path / split)
        assert [record["step"] for record in records(tmp_path, split)] == steps
        for record in records(tmp_path, split):
            for name in set(record) - {"step", "split", "time"}:
                assert list(events[name]) == steps
                np.testing.assert_allclose(events[name][record["step"]], record[name], rtol=1e-6)


def test_no_summaries_are_written_when_they_are_disabled(tmp_path):
    run(toy_config(), tmp_path, save_summary=False)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".lock", "checkpoint", "checkpoints", "data.json"]


@pytest.mark.slow
def test_record_after_a_stop_says_how_many_steps_it_averages(tmp_path):
    config = toy_config(trainer__train_steps=15)
    with pytest.raises(StoppedAtStep):
        run(config, tmp_path, stop_at_step=7)
    run(config, tmp_path)
    train = records(tmp_path, "train")
    steps = descent(config, 15)
    assert [record.get("averaged_steps") for record in train] == [None, 3, None]
    for record, (start, end) in zip(train, [(0, 5), (7, 10), (10, 15)], strict=True):
        losses = [loss for _, loss, _ in steps[start:end]]
        np.testing.assert_allclose(record["training_loss"], np.mean(losses), rtol=1e-4)
    assert "averaged_steps" not in _events(tmp_path / "train")


def test_nan_and_infinity_become_null_in_json(tmp_path):
    path = tmp_path / "metrics.jsonl"
    numbers = {"a": np.float32(0.1), "b": float("nan"), "c": np.int64(3), "d": np.float32("inf")}
    append_records(path, numbers)
    append_records(path, {"a": 1e-30})
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first == {"a": 0.1, "b": None, "c": 3, "d": None}
    assert second == {"a": 1e-30}


def test_nested_results_are_flattened_and_arrays_are_left_out(tmp_path):
    step = tf.Variable(7, dtype=tf.int64)
    summaries = Summaries(tmp_path / "x", tmp_path / "m.jsonl", "validation", step)
    summaries.write_summaries(
        {"loss": 1.5, "matrix": np.eye(2), "per_class": {"cat": np.float32(0.5)}}
    )
    summaries.flush()
    record = json.loads((tmp_path / "m.jsonl").read_text())
    assert {key: record[key] for key in record if key != "time"} == {
        "step": 7,
        "split": "validation",
        "loss": 1.5,
        "per_class/cat": 0.5,
    }
    assert _events(tmp_path / "x") == {"loss": {7: 1.5}}
    assert _events(tmp_path / "x" / "per_class") == {"cat": {7: 0.5}}


@pytest.mark.promise("faults", "event files that cannot be written do not end a run")
@pytest.mark.slow
def test_run_continues_without_event_files_that_cannot_be_written(tmp_path):
    whole, _ = run(toy_config(), tmp_path / "whole")
    parts, notes = tmp_path / "parts", Notes()
    parts.mkdir()
    (parts / "train").write_text("A file is where the directory would be.")
    model, _ = run(toy_config(), parts, notes=notes)
    assert [record["step"] for record in records(parts, "train")] == [5, 10, 15, 20]
    assert _events(parts / "validation")["error"].keys() == {5, 10, 15, 20}
    [warning] = [text for text in notes.notes if "event files" in text]
    assert warning.startswith(f"warning: event files in {parts / 'train'} cannot be written: ")
    assert warning.endswith("\n  training continues without them")
    assert weights_fingerprint(model) == weights_fingerprint(whole)


def test_error_of_a_step_is_not_taken_for_an_error_of_the_event_files(tmp_path):
    step = tf.Variable(0, dtype=tf.int64)
    summaries = Summaries(tmp_path, None, "train", step)
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="of the step"),
        summaries.summary_writer().as_default(),
    ):
        raise tf.errors.InvalidArgumentError(None, None, "an error of the step")
    assert summaries.writes_events
