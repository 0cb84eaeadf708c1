"""Steps that change no weight: those of the config, and those that were not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.run_directory.metric_records import read_skipped_steps
from orbit_runner.train.nonfinite.skipped_steps import SkippedSteps
from orbit_runner.train.stop_requests import StoppedAtStep
from tests.support.digits import digits_config
from tests.support.faults import faulty_config, record_of
from tests.support.problems import raises
from tests.support.toy import make_strategy, records, run, session_of, toy_config, toy_task, weights

SKIP = {"trainer__on_nonfinite": "skip"}
# Steps 626 and 876.
TWO = {"task__bad_examples": "[5003, 7001]"}


@pytest.mark.parametrize(
    ("step", "steps", "expected"),
    [(0, 10, 4), (3, 10, 3 - 2), (4, 10, 1), (5, 10, 2), (7, 10, 1), (8, 10, 10), (0, 2, 2)],
)
def test_skipped_step_is_a_piece_of_its_own(step: int, steps: int, expected: int) -> None:
    skipped = SkippedSteps([5], lambda iterator, first, steps: None)
    skipped.found = (8,)
    assert skipped.piece_length(step, steps) == expected


def test_skipped_step_takes_its_batch_and_changes_no_weight(tmp_path: Path) -> None:
    config = toy_config(trainer__skip_steps="[3, 10]", trainer__train_steps=10)
    model, _ = run(config, tmp_path)

    (kernel,) = session_of(config, tmp_path / "b", make_strategy("off")).model.get_weights()
    features, labels = toy_task(config).arrays()
    for step in range(10):
        if step + 1 in (3, 10):
            continue
        rows = (step * 8 + np.arange(8)) % len(features)
        off = features[rows] @ kernel - labels[rows]
        kernel = kernel - 0.1 * 2 / 8 * features[rows].T @ off
    np.testing.assert_allclose(model.get_weights()[0], kernel, rtol=1e-5)
    # The learning rate of a step must not depend on skipped steps.
    content = CheckpointContent(tmp_path / "checkpoints" / "ckpt-10")
    (count,) = (content.tensor(key) for key in content.state_keys() if "iter" in key)
    assert count == 10


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize(
    "changes",
    [
        {"trainer__summary_interval": 1, "trainer__steps_per_loop": 20},
        {"trainer__watch_interval": 7, "trainer__summary_interval": 7},
        {"trainer__gradient_accumulation_steps": 2},
        {"trainer__train_tf_while_loop": False},
    ],
)
def test_loops_and_records_do_not_change_a_run_with_skipped_steps(
    changes: dict[str, Any], strategy: str, tmp_path: Path
) -> None:
    base: dict[str, Any] = {"trainer__skip_steps": "[2, 7, 8, 20]"}
    if "trainer__gradient_accumulation_steps" in changes:
        base |= changes
    first, _ = run(toy_config(**base, trainer__steps_per_loop=1), tmp_path / "a", strategy=strategy)
    second, _ = run(toy_config(**{**base, **changes}), tmp_path / "b", strategy=strategy)
    np.testing.assert_array_equal(weights(first), weights(second))
    steps = [one["step"] for one in records(tmp_path / "b", "train")]
    interval = changes.get("trainer__summary_interval", 5)
    assert steps == sorted({*range(interval, 21, interval), 20})


@pytest.mark.slow
def test_skipped_step_of_batches_that_are_made_in_the_graph(tmp_path: Path) -> None:
    config = digits_config(trainer__skip_steps="[15, 31]", trainer__steps_per_loop=60)
    in_pipeline = {"task__train_data__on_device": False, "trainer__steps_per_loop": 7}
    first, _ = run(config, tmp_path / "a")
    second, _ = run(digits_config(trainer__skip_steps="[15, 31]", **in_pipeline), tmp_path / "b")
    for one, other in zip(weights(first), weights(second), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [one["step"] for one in records(tmp_path / "a", "train")] == [15, 30, 45, 60]


@pytest.mark.slow
def test_measurements_of_a_skipped_step_are_missing(tmp_path: Path) -> None:
    config = toy_config(trainer__skip_steps="[10]", trainer__watch_interval=5)
    run(config, tmp_path, strategy="mirrored2")
    norms = {one["step"]: one["watch/gradient_norm"] for one in records(tmp_path, "train")}
    assert norms.keys() == {5, 10, 15, 20}
    assert [step for step, norm in norms.items() if norm is None] == [10]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_run_that_skips_equals_one_whose_config_skips(strategy: str, tmp_path: Path) -> None:
    # The first two are found after the same checkpoint.
    bad = {"task__bad_examples": "[5003, 5499, 7001]"}
    run(faulty_config(**SKIP, **bad), tmp_path / "a", strategy=strategy)
    skips = {"trainer__skip_steps": "[626, 688, 876]"}
    run(faulty_config(**skips, **bad), tmp_path / "b", strategy=strategy)

    assert record_of(tmp_path / "a", 1000).state == record_of(tmp_path / "b", 1000).state
    assert record_of(tmp_path / "a", 750).skipped == [626, 688]
    assert record_of(tmp_path / "a", 1000).skipped == [626, 688, 876]
    assert read_skipped_steps(tmp_path / "a" / "metrics.jsonl") == (626, 688, 876)
    for split in ("train", "validation"):
        found = [[one["step"] for one in records(tmp_path / name, split)] for name in "ab"]
        assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [550, 700, 760])
def test_resumed_run_skips_the_same_steps(stop: int, tmp_path: Path) -> None:
    config = faulty_config(**SKIP, **TWO)
    with pytest.raises(StoppedAtStep):
        run(config, tmp_path / "a", stop_at_step=stop)
    run(config, tmp_path / "a")
    run(config, tmp_path / "b")
    for step in (750, 1000):
        states = [record_of(tmp_path / name, step) for name in "ab"]
        assert states[0].state == states[1].state
        assert list(states[0].skipped) == list(states[1].skipped)


@pytest.mark.slow
def test_steps_that_no_checkpoint_contains_are_searched_again(tmp_path: Path) -> None:
    config = faulty_config(**SKIP)
    run(config, tmp_path / "a")
    for path in (tmp_path / "a" / "checkpoints").glob("ckpt-[17]*"):
        path.unlink()
    first = record_of(tmp_path / "a", 500)
    assert list(first.skipped) == []

    run(config, tmp_path / "a")

    events = [one for one in records(tmp_path / "a", "event") if "skipped" in one]
    assert [one["skipped"] for one in events] == [[626], [], [626]]


@pytest.mark.slow
def test_run_ends_when_too_many_steps_are_not_finite(tmp_path: Path) -> None:
    config = faulty_config(**SKIP, **TWO, trainer__max_skipped_steps=1)
    for _ in range(2):  # The second run reads how many were skipped from the checkpoint.
        with raises("diverged") as caught:
            run(config, tmp_path)
        assert caught.value.step == 876
    assert list(record_of(tmp_path, 875).skipped) == [626]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [SKIP, {"trainer__on_nonfinite": "stop"}])
def test_setting_has_no_effect_on_a_finite_run(changes: dict[str, Any], tmp_path: Path) -> None:
    run(toy_config(), tmp_path / "a")
    run(toy_config(**changes), tmp_path / "b")
    assert record_of(tmp_path / "a", 20).state == record_of(tmp_path / "b", 20).state
