"""`trainer.profile_steps`: which steps are traced, and that tracing changes nothing."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.errors import ConfigError
from orbit_runner.errors import Diverged, Interrupted
from orbit_runner.profiling.profile import Profile, read_profile
from orbit_runner.profiling.trace_files import FIRST, MARKER, STEPS, newest_trace, read_description
from orbit_runner.profiling.xspace import read_xspace, stats_of
from orbit_runner.train.callbacks.base import Callback
from tests.support.digits import cnn_config, digits_config
from tests.support.toy import Notes, records, run, toy_config


def _traced(folder: Path) -> list[int]:
    """Returns the numbers of the steps in the newest trace."""
    trace = newest_trace(folder)
    assert trace is not None
    found: list[int] = []
    for plane in read_xspace(trace.hosts[0]).planes:
        for line in plane.lines:
            for event in line.events:
                if plane.event_metadata[event.metadata_id].name == MARKER:
                    stats = stats_of(plane, event.stats)
                    found += range(stats[FIRST], stats[FIRST] + stats[STEPS])
    return found


def _profiled(config: Any, folder: Path, strategy: str = "one_device") -> Profile:
    run(config, folder, "train", strategy)
    return read_profile(folder)


_CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "batches in the graph": (cnn_config, {"task__train_data__on_device": True}, "one_device"),
    "pipeline": (cnn_config, {"task__train_data__on_device": False}, "one_device"),
    "mirrored": (cnn_config, {}, "mirrored2"),
    "mirrored pipeline": (cnn_config, {"task__train_data__on_device": False}, "mirrored2"),
    "no while loop": (toy_config, {"trainer__train_tf_while_loop": False}, "one_device"),
    "accumulation": (digits_config, {"trainer__gradient_accumulation_steps": 2}, "one_device"),
    "watch": (digits_config, {"trainer__watch_interval": 5}, "one_device"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", _CASES)
def test_weights_and_records_are_the_same_without_a_trace(case: str, tmp_path: Path) -> None:
    make, changes, strategy = _CASES[case]
    same = {"trainer__train_steps": 20, "trainer__summary_interval": 5, **changes}
    found = []
    for name, steps in (("without", "[]"), ("with", "[4, 12]")):
        config, folder = make(**same, trainer__profile_steps=steps), tmp_path / name
        model, _ = run(config, folder, "train", strategy)
        losses = [(one["step"], one["training_loss"]) for one in records(folder, "train")]
        found.append((weights_fingerprint(model), losses))
    assert found[0] == found[1]
    assert _traced(tmp_path / "with") == [*range(4, 13)]
    assert newest_trace(tmp_path / "without") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "replicas"), [("one_device", 1), pytest.param("mirrored2", 2, id="mirrored2")]
)
def test_layers_of_the_network_have_a_forward_and_a_backward_pass(
    strategy: str, replicas: int, tmp_path: Path
) -> None:
    config = cnn_config(trainer__train_steps=20, trainer__profile_steps="[11, 20]")

    found = _profiled(config, tmp_path, strategy)

    parts = {row.part: row for row in found.parts}
    for layer in ("conv2", "dense", "logits"):
        assert parts[layer].forward > 0
        assert parts[layer].backward > 0
    assert {"optimizer", "loss", "input"} <= {*parts}
    calls = {row.kind: row.calls for row in found.kinds}
    assert calls["Conv2DBackpropInput"] == replicas
    assert found.step_seconds > 0
    assert found.busy is not None
    assert 0 < found.busy <= 1
    assert (found.steps, found.pipeline) == (10, False)
    trace = newest_trace(tmp_path)
    assert trace is not None
    described = read_description(trace)
    assert {"conv1", "conv2", "dense", "logits"} <= {*described.layers}
    assert (described.model, described.optimizers) == ("cnn", ("Adam",))


@pytest.mark.slow
@pytest.mark.parametrize("on_device", [True, False])
def test_layers_of_compiled_steps_have_both_passes(on_device: bool, tmp_path: Path) -> None:
    config = digits_config(
        trainer__train_steps=20, trainer__profile_steps="[11, 20]", runtime__enable_xla=True,
        task__train_data__on_device=on_device,
    )  # fmt: skip

    found = _profiled(config, tmp_path)

    parts = {row.part: row for row in found.parts}
    for layer in ("dense1", "logits"):
        assert parts[layer].forward > 0
        assert parts[layer].backward > 0
    assert {"optimizer", "loss"} <= {*parts}
    # Ops whose origin XLA does not keep, such as copies.
    assert parts["programs of XLA"].share < 0.2


def test_batches_of_a_pipeline_are_waited_for(tmp_path: Path) -> None:
    changes = {"task__train_data__on_device": False, "trainer__train_steps": 20}
    config = cnn_config(**changes, trainer__profile_steps="[11, 20]")

    found = _profiled(config, tmp_path)

    assert found.pipeline
    assert 0 < found.wait_seconds < found.step_seconds


@pytest.mark.slow
@pytest.mark.parametrize("steps_per_loop", [1, 7, 20])
def test_traced_steps_do_not_depend_on_where_loops_end(steps_per_loop: int, tmp_path: Path) -> None:
    run(
        toy_config(trainer__profile_steps="[5, 9]", trainer__steps_per_loop=steps_per_loop),
        tmp_path,
        "train_and_eval",
    )

    assert _traced(tmp_path) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("resumed_at", "expected"), [(5, [6, 7, 8]), (6, None), (8, None), (12, None)]
)
def test_a_run_that_is_resumed_after_the_first_step_traces_nothing(
    resumed_at: int, expected: list[int] | None, tmp_path: Path
) -> None:
    run(toy_config(trainer__train_steps=resumed_at), tmp_path, "train")

    run(toy_config(trainer__profile_steps="[6, 8]"), tmp_path, "train")

    if expected is None:
        assert newest_trace(tmp_path) is None
    else:
        assert _traced(tmp_path) == expected


def test_a_trace_ends_with_the_run(tmp_path: Path) -> None:
    run(toy_config(trainer__profile_steps="[16, 90]"), tmp_path, "train")

    assert _traced(tmp_path) == [16, 17, 18, 19, 20]
    assert read_profile(tmp_path).cores > 0


def test_divergence_keeps_the_steps_before_it(tmp_path: Path) -> None:
    config = toy_config(
        trainer__profile_steps="[3, 90]", task__nan_from=11, trainer__steps_per_loop=1
    )
    with pytest.raises(Diverged):
        run(config, tmp_path, "train")

    assert _traced(tmp_path) == [*range(3, 13)]
    _profiler_is_free(tmp_path)


def test_a_run_that_returns_to_a_checkpoint_ends_its_trace(tmp_path: Path) -> None:
    config = toy_config(
        trainer__profile_steps="[6, 90]",
        task__nan_from=11,
        trainer__steps_per_loop=1,
        trainer__recovery_max_trials=1,
    )
    run(config, tmp_path, "train")

    assert _traced(tmp_path) == [*range(6, 13)]


class _Signal(Callback):
    """Receives SIGTERM at step 10."""

    def on_loop_end(self, run: Any, logs: Any) -> None:
        if run.step == 10:
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_keeps_the_steps_before_it(tmp_path: Path) -> None:
    config = toy_config(trainer__profile_steps="[7, 90]", trainer__steps_per_loop=1)
    with pytest.raises(Interrupted):
        run(config, tmp_path, "train", callbacks=[_Signal()])

    assert _traced(tmp_path) == [7, 8, 9, 10]
    _profiler_is_free(tmp_path)


def _profiler_is_free(folder: Path) -> None:
    """Starts the profiler, which raises an error if it is running."""
    tf.profiler.experimental.start(str(folder / "other"))
    tf.profiler.experimental.stop(save=False)


def test_training_continues_with_a_warning_if_the_profiler_is_in_use(tmp_path: Path) -> None:
    notes = Notes()
    tf.profiler.experimental.start(str(tmp_path / "other"))
    try:
        run(toy_config(trainer__profile_steps="[6, 8]"), tmp_path / "run", "train", notes=notes)
    finally:
        tf.profiler.experimental.stop(save=False)

    warnings = [text for text in notes.notes if "profile_steps" in text]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "warning: trainer.profile_steps: the profiler does not start: Another profiler"
    )
    assert records(tmp_path / "run", "train")[-1]["step"] == 20


def test_training_continues_with_a_warning_if_the_trace_cannot_be_written(tmp_path: Path) -> None:
    notes = Notes()
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "plugins").write_text("no directory")

    run(toy_config(trainer__profile_steps="[6, 8]"), tmp_path, "train", notes=notes)

    warnings = [text for text in notes.notes if "profile_steps" in text]
    assert len(warnings) == 1
    assert "the trace cannot be written" in warnings[0]
    assert records(tmp_path, "train")[-1]["step"] == 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainer.profile_steps": "[5]"}, "got [5], allowed: the first and the last step"),
        ({"trainer.profile_steps": "[9, 5]"}, "got [9, 5], allowed"),
        ({"trainer.profile_steps": "[1, 2, 3]"}, "got [1, 2, 3], allowed"),
        ({"trainer.profile_steps": "[0, 2]"}, "got 0, allowed: at least 1"),
        ({"runtime.distribution_strategy": "parameter_server"}, "under `parameter_server`"),
    ],
)  # fmt: skip
def test_steps_that_cannot_be_traced_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        toy_config(**{"trainer.profile_steps": "[1, 2]", **changes})

    assert message in str(caught.value)
