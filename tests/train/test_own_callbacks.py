"""The best checkpoint, early stopping, divergence and rollback."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.checkpoint.manager import RunConditions
from orbit_runner.config.schema.trainer import EarlyStopping
from orbit_runner.run_directory.metric_records import MetricLog
from orbit_runner.train.callbacks.best_checkpoint import BestCheckpoint, Comparison
from orbit_runner.train.callbacks.own_callbacks import EarlyStop
from tests.support.configs import keep_best
from tests.support.problems import raises
from tests.support.toy import (
    Notes,
    make_strategy,
    records,
    run,
    state_of,
    toy_config,
    trained,
)

BEST = keep_best("error")
# The part of a run that the best checkpoint uses.
RUN = SimpleNamespace(checkpoints=SimpleNamespace(conditions=RunConditions()))


@pytest.mark.parametrize("trains", [True, False])
def test_best_checkpoint_has_the_best_value_so_far(trains, tmp_path):
    state = state_of(toy_config(), make_strategy("one_device"))
    best = BestCheckpoint(Comparison("m", False), tmp_path, state, trains=trains)
    values, kept = [float("nan"), 0.5, 0.7, 0.4], [None, 2, 2, 4]
    for step, (value, expected) in enumerate(zip(values, kept, strict=True), start=1):
        state.global_step.assign(step)
        state.model.set_weights([np.full([3, 1], step, np.float32)])
        best.on_evaluate(
            RUN, {"m": np.float32(value), "other": np.float32("nan"), "matrix": np.eye(2)}
        )
        latest = tf.train.latest_checkpoint(str(tmp_path))
        assert latest == (None if expected is None else str(tmp_path / f"best-{expected}"))
        assert (best.result() is None) == (latest is None)
        if latest is not None:
            info = json.loads((tmp_path / "info.json").read_text(), parse_constant=pytest.fail)
            assert info["best_ckpt_global_step"] == expected
            assert best.result() == ("m", info["m"], expected)
            assert info["other"] is None
            assert "matrix" not in info
            model = state_of(toy_config(), make_strategy("one_device")).model
            tf.train.Checkpoint(model=model).read(latest).expect_partial()
            np.testing.assert_array_equal(model.get_weights()[0], np.full([3, 1], expected))
    assert len(list(tmp_path.glob("best-*.index"))) == 1


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        (
            {**BEST, "trainer__best_checkpoint_eval_metric": "eror"},
            "trainer.best_checkpoint_eval_metric",
        ),
        (
            {
                "trainer__early_stopping__metric": "eror",
                "trainer__early_stopping__patience": 2,
            },
            "trainer.early_stopping.metric",
        ),
    ],
)
def test_unknown_metric_is_rejected_before_training(changes, path, tmp_path):
    notes = Notes()
    with raises("unknown-name", path):
        run(toy_config(**changes), tmp_path, notes=notes)
    assert notes.started_at == []


@pytest.mark.parametrize(
    ("rule", "values", "ends_at"),
    [
        ({"patience": 2}, [3.0, 2.0, 2.0, 1.0, 1.5, 1.2], 6),
        ({"patience": 2}, [3.0, 2.0, 1.0], None),
        ({"patience": 1}, [1.0, 1.0], 2),
        ({"patience": 2, "min_delta": 0.5}, [3.0, 2.8, 2.6, 2.0], 3),
        ({"threshold": 1.5}, [3.0, 1.6, 1.5], 3),
        ({"threshold": 1.5, "metric_comp": "higher"}, [1.0, 1.4, 1.6], 3),
        ({"patience": 2, "metric_comp": "higher"}, [1.0, 2.0, 1.0, 2.0], 4),
        ({"patience": 2}, [float("nan"), float("nan")], 2),
        ({"threshold": 1.0}, [float("nan"), 2.0], None),
    ],
)
def test_early_stopping_ends_training(rule, values, ends_at):
    state = None
    ended = None
    for index, value in enumerate(values, start=1):
        # A new object each time, as in a run that is resumed after each evaluation.
        stop = EarlyStop(EarlyStopping(metric="m", **rule))
        stop.set_state(json.loads(json.dumps(state or stop.get_state())))
        assert not _reason_at_start(stop)
        if _reason(stop, {"m": np.float32(value)}, 10 * index):
            ended = index
            assert _reason_at_start(stop)
            break
        state = stop.get_state()
    assert ended == ends_at


class _Run:
    """The parts of a run that early stopping uses."""

    def __init__(self, step):
        self.step, self.reason = step, ""

    def stop(self, reason):
        self.reason = self.reason or reason


def _reason(callback, logs, step):
    run = _Run(step)
    callback.on_evaluate(run, logs)
    return run.reason


def _reason_at_start(callback):
    run = _Run(0)
    callback.on_train_begin(run)
    return run.reason


STOPPING = {
    "trainer__early_stopping__metric": "validation_loss",
    "trainer__early_stopping__patience": 1,
    # The toy never improves by that much, so the second evaluation is no better.
    "trainer__early_stopping__min_delta": 100.0,
}


@pytest.mark.slow
def test_run_that_stopped_early_counts_as_finished(tmp_path):
    notes = Notes()
    model, _ = run(toy_config(**STOPPING), tmp_path, notes=notes)
    assert [step for step, _ in notes.evaluations] == [5, 10]
    assert "stopped early at step 10" in notes.notes[0]
    second_notes = Notes()
    same, logs = run(toy_config(**STOPPING), tmp_path, notes=second_notes)
    np.testing.assert_array_equal(same.get_weights()[0], model.get_weights()[0])
    assert "finished" in second_notes.notes[-1]
    assert "was no better" in second_notes.notes[-1]
    assert logs["validation_examples"] == 20
    patient = {**STOPPING, "trainer__early_stopping__patience": 2}
    on = Notes()
    run(toy_config(**patient), tmp_path, notes=on, resume="override")
    assert [step for step, _ in on.evaluations] == [15]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"trainer__loss_upper_bound": 1e-9}, 5),
        ({"trainer__loss_upper_bound": 1e-9, "trainer__recovery_begin_steps": 6}, 10),
        ({"task__nan_from": 7}, 10),
    ],
)
def test_divergence_ends_the_run(changes, at, tmp_path):
    config = toy_config(**{"trainer__steps_per_loop": 5, **changes})
    with raises("diverged") as caught:
        run(config, tmp_path)
    assert caught.value.step == at
    assert caught.value.exit_code == 3
    latest = tf.train.latest_checkpoint(str(tmp_path / "checkpoints"))
    assert latest is None or not latest.endswith(f"-{at}")


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["one_device", "mirrored2"])
def test_diverged_run_returns_to_a_checkpoint_and_changes_the_order(name, tmp_path):
    notes = Notes()
    config = toy_config(
        task__nan_from=12,
        trainer__recovery_max_trials=2,
        trainer__steps_per_loop=4,
        trainer__summary_interval=4,
        trainer__validation_interval=20,
    )
    session = trained(config, tmp_path, make_strategy(name), notes)
    assert session.step == 20
    assert int(session.state.recoveries.numpy()) == 1
    assert [
        reason for reason in session.inexact_reasons() if "recoveries from divergence: 1;" in reason
    ]
    (note,) = notes.notes
    assert "diverged: the mean loss of steps 13 to 15 is nan" in note
    assert (
        "returned to step 10 (recovery 1 of 2), continuing with another order of examples" in note
    )
    event, recovery = records(tmp_path, "event")
    assert (event["event"], event["step"]) == ("diverged", 15)
    assert (recovery["event"], recovery["step"], recovery["recoveries"]) == ("recovered", 10, 1)
    assert MetricLog(tmp_path / "metrics.jsonl").recoveries() == [(1, 0), (11, 1)]
    assert event["reason"] == "the mean loss of steps 13 to 15 is nan"
    assert np.isfinite(session.state.model.get_weights()[0]).all()
    # Diverged steps have no records, in particular not at step 10, to which training returned.
    assert [record["step"] for record in records(tmp_path, "train")] == [4, 8, 12, 12, 16, 20]
    assert all(record["training_loss"] is not None for record in records(tmp_path, "train"))


@pytest.mark.slow
@pytest.mark.parametrize("is_initialized", [False, True])
def test_diverged_run_returns_to_the_start_if_nothing_is_saved(is_initialized, tmp_path):
    start = {}
    if is_initialized:
        run(toy_config(), tmp_path / "first")
        start = {"task__init_checkpoint": tmp_path / "first" / "checkpoints"}
    notes = Notes()
    config = toy_config(task__nan_from=2, trainer__recovery_max_trials=1, **start)
    model, _ = run(config, tmp_path / "a", notes=notes)
    assert any("returned to step 0 (recovery 1 of 1)" in note for note in notes.notes)
    plain, _ = run(toy_config(task__train_data__seed=1_000_003, **start), tmp_path / "b")
    np.testing.assert_array_equal(model.get_weights()[0], plain.get_weights()[0])


def test_run_fails_when_no_recovery_trials_are_left(tmp_path):
    config = toy_config(trainer__loss_upper_bound=1e-9, trainer__recovery_max_trials=2)
    notes = Notes()
    with raises("diverged"):
        run(config, tmp_path, notes=notes)
    assert len(notes.notes) == 2
    # A restart keeps the events, which do not happen again with another bound.
    other = config.replace(trainer=config.trainer.replace(loss_upper_bound=1e6))
    run(other, tmp_path, resume="override")
    events = [event["event"] for event in records(tmp_path, "event")]
    assert events == ["diverged", "recovered", "diverged", "recovered", "diverged", "resumed"]
    # The recoveries were not saved before the run ended, so the restart has the first order.
    assert MetricLog(tmp_path / "metrics.jsonl").recoveries() == [(1, 0)]


def test_rollback_note_reports_an_unchanged_order(tmp_path):
    notes = Notes()
    config = toy_config(
        task__nan_from=7,
        task__train_data__shuffle_buffer_size=0,
        trainer__recovery_max_trials=1,
    )
    run(config, tmp_path, notes=notes)
    (note,) = notes.notes
    assert note.endswith(
        "continuing with the same order of examples, because "
        "task.train_data.shuffle_buffer_size is 0"
    )


def test_best_checkpoint_warns_about_a_metric_that_is_not_finite(tmp_path):
    notes = Notes()
    state = state_of(toy_config(), make_strategy("one_device"))
    best = BestCheckpoint(Comparison("m", higher=True), tmp_path, state)
    with notes.listening_scope():
        for step, value in enumerate(["nan", "nan", "0.5", "inf"], start=1):
            state.global_step.assign(step)
            best.on_evaluate(RUN, {"m": float(value)})
    assert notes.notes == [
        f"warning: m is {value} at step {step}, so these weights are not saved as the best"
        for value, step in (("nan", 1), ("inf", 4))
    ]
    assert json.loads((tmp_path / "info.json").read_text())["best_ckpt_global_step"] == 3
