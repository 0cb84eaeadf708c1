"""The first step that is not finite is found, and the weights before it are saved."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.errors import Diverged, Interrupted
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.nonfinite import handling as module
from orbit_runner.train.stop_requests import StoppedAtStep
from tests.support.digits import digits_config
from tests.support.faults import faulty_config, first_bad_step, record_of
from tests.support.run_directories import saved_steps
from tests.support.toy import Notes, records, run

RATE = "trainer__optimizer_config__learning_rate__constant__learning_rate"
# The mean of the loss exceeds the bound before it overflows.
EXPLODING = {RATE: 10.0, "task__fault": "none", "trainer__loss_upper_bound": ".inf"}
FAULTS: dict[str, dict[str, Any]] = {
    "image": {},
    "label": {"task__fault": "label"},
    "log of 0": {"task__fault": "zero"},
    "rate": EXPLODING,
    "first step": {"task__bad_examples": "[3]"},
    "after a checkpoint": {"task__bad_examples": "[2001]"},
    "last step": {"task__bad_examples": "[7999]"},
    "momentum and average": {
        "trainer__optimizer_config__optimizer__sgd__momentum": 0.9,
        RATE: 0.02,
        "trainer__optimizer_config__ema__average_decay": 0.9,
    },
    "one checkpoint at the end": {"trainer__checkpoint_interval": 0},
    "gradients of two pieces": {"trainer__gradient_accumulation_steps": 2},
}


def _diverged(config: ExperimentConfig, directory: Path, **arguments: Any) -> Diverged:
    with pytest.raises(Diverged) as caught:
        run(config, directory, **arguments)
    assert caught.value.exit_code == 3
    return caught.value


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("fault", FAULTS)
def test_step_is_named_and_the_weights_before_it_are_saved(
    fault: str, strategy: str, tmp_path: Path
) -> None:
    config = faulty_config(**FAULTS[fault])
    step = first_bad_step(config, tmp_path / "steps", strategy)

    error = _diverged(config, tmp_path / "a", strategy=strategy)

    assert error.step == step > 0
    assert f"training diverged: step {step} is not finite: " in str(error)
    assert "the loss is " in str(error)
    assert f"replay {tmp_path / 'a'} --step={step}" in str(error)
    assert saved_steps(tmp_path / "a")[-1] == step - 1
    content = CheckpointContent(tmp_path / "a" / "checkpoints" / f"ckpt-{step - 1}")
    assert content.summary().non_finite == ()
    event = records(tmp_path / "a", "event")[-1]
    assert (event["event"], event["step"], event["reason"]) == ("diverged", step - 1, error.reason)
    if step > 1:
        with pytest.raises(StoppedAtStep):
            run(config, tmp_path / "b", strategy=strategy, stop_at_step=step - 1)
        state = record_of(tmp_path / "a", step - 1).state
        assert state == record_of(tmp_path / "b", step - 1).state
        assert _lines(tmp_path / "a") == _lines(tmp_path / "b")


def _lines(directory: Path) -> list[tuple[int, str]]:
    """Returns the step and the split of all records but events."""
    path = directory / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = [(one["step"], one["split"]) for one in map(json.loads, lines)]
    return [one for one in found if one[1] != "event"]


@pytest.mark.slow
def test_records_of_steps_that_are_trained_again_are_written_once(tmp_path: Path) -> None:
    config = faulty_config(trainer__summary_interval=50)
    _diverged(config, tmp_path)
    assert [one["step"] for one in records(tmp_path, "train")] == [*range(50, 650, 50)]
    assert [one["step"] for one in records(tmp_path, "validation")] == [300, 600]


@pytest.mark.slow
def test_resumed_run_ends_at_the_same_step(tmp_path: Path) -> None:
    config = faulty_config()
    errors = [_diverged(config, tmp_path) for _ in range(2)]
    assert [error.step for error in errors] == [626, 626]
    assert saved_steps(tmp_path) == [250, 500, 625]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_step_of_batches_that_are_made_in_the_graph(strategy: str, tmp_path: Path) -> None:
    config = digits_config(
        trainer__optimizer_config__learning_rate__type="exponential",
        trainer__optimizer_config__learning_rate__exponential__initial_learning_rate=0.001,
        trainer__optimizer_config__learning_rate__exponential__decay_steps=1,
        trainer__optimizer_config__learning_rate__exponential__decay_rate=10.0,
        trainer__loss_upper_bound=".inf",
        trainer__steps_per_loop=60,
        trainer__summary_interval=60,
    )
    step = first_bad_step(config, tmp_path / "steps", strategy)

    error = _diverged(config, tmp_path / "a", strategy=strategy)

    assert error.step == step > 2
    assert saved_steps(tmp_path / "a")[-1] == step - 1
    order = run_order(config, step)
    assert f"examples of step {step}: {', '.join(order[:8])}, … (64 in all)" in str(error)


def run_order(config: ExperimentConfig, step: int) -> list[str]:
    from orbit_runner.step.examples import TrainingOrder

    return [str(row["example"]) for row in TrainingOrder(config, None).step(step).chosen]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"runtime__deterministic": False}, "runtime.deterministic is false"),
        ({"trainer__replay_inputs": True}, "training again up to step 1000 did not find it"),
    ],
)
def test_error_says_why_the_step_is_unknown(
    changes: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaks(Callback):
        """Changes a weight outside of the steps, so that they cannot be trained again."""

        def on_loop_end(self, run: Any, logs: Any) -> None:
            if run.step == 500:
                run.model.weights[0].assign(np.full([3, 1], np.nan))

    config = faulty_config(task__fault="none", **changes)
    error = _diverged(config, tmp_path, callbacks=[Breaks()])
    assert error.step is None
    assert reason.replace("1000", "500") in str(error)


@pytest.mark.slow
def test_interrupted_search_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, isqrt = faulty_config(), module.math.isqrt

    def interrupted(number: int) -> int:
        signal.raise_signal(signal.SIGTERM)
        return isqrt(number)

    with monkeypatch.context() as patch:
        patch.setattr(module.math, "isqrt", interrupted)
        with pytest.raises(Interrupted):
            run(config, tmp_path / "a")
    assert saved_steps(tmp_path / "a") == [250, 500]

    assert _diverged(config, tmp_path / "a").step == 626
    _diverged(config, tmp_path / "b")
    assert record_of(tmp_path / "a", 625).state == record_of(tmp_path / "b", 625).state


@pytest.mark.slow
def test_notes_show_the_search(tmp_path: Path) -> None:
    notes = Notes()
    _diverged(faulty_config(), tmp_path, notes=notes)
    text = "\n".join(notes.notes)
    assert "training again from the last checkpoint to find the first step" in text
    assert "training from step 500 to 625 to save its weights" in text


@pytest.mark.slow
def test_callbacks_do_not_see_the_search(tmp_path: Path) -> None:
    seen = []

    class Sees(Callback):
        def on_loop_end(self, run: Any, logs: Any) -> None:
            seen.append((run.step, bool(np.isfinite(run.model.weights[0].numpy()).all())))

    _diverged(faulty_config(), tmp_path, callbacks=[Sees()])
    assert seen == [(step, True) for step in (250, 300, 500, 600, 600, 625)]


@pytest.mark.slow
def test_initial_state_is_computed_again(tmp_path: Path) -> None:
    tf.random.normal([3])  # The generators have moved on since the state was built.
    config = faulty_config(trainer__checkpoint_interval=0)
    _diverged(config, tmp_path / "a")
    with pytest.raises(StoppedAtStep):
        run(config, tmp_path / "b", stop_at_step=625)
    assert record_of(tmp_path / "a", 625).state == record_of(tmp_path / "b", 625).state


@pytest.mark.slow
def test_loss_that_was_not_finite_at_an_earlier_check_is_found(tmp_path: Path) -> None:
    """Several workers check only weights between the pieces of a loop, not losses."""

    class Misses(Callback):
        def on_train_begin(self, run: Any) -> None:
            run.trainer.finite_check.end_piece = lambda step: None
            run.trainer.finite_check.good_step = 700

    assert _diverged(faulty_config(), tmp_path, callbacks=[Misses()]).step == 626
