"""`trainer.profile_steps`: which steps are traced, and what a run says about them."""

import contextlib
import signal

import pytest
import tensorflow as tf

from orbit_runner.config.errors import ConfigError
from orbit_runner.errors import Diverged, Interrupted
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.step_profiler import waiting_share
from tests.support.digits import cnn_config
from tests.support.toy import Notes, records, run, toy_config


def _reports(notes):
    """Returns what a run told about its trace, without the directory."""
    return [text.partition(":")[0] for text in notes.notes if text.startswith("traced steps")]


def _trace(folder):
    """Returns the only trace of a run."""
    (trace,) = folder.glob("train/plugins/profile/*/*.xplane.pb")
    return trace


@pytest.mark.parametrize(
    "strategy", ["one_device", pytest.param("mirrored2", marks=pytest.mark.slow)]
)
def test_steps_wait_for_a_slow_pipeline(strategy, tmp_path):
    changes = {"task__train_data__on_device": False, "trainer__train_steps": 20}
    config, notes = cnn_config(**changes, trainer__profile_steps="[11, 20]"), Notes()

    run(config, tmp_path, "train", strategy, notes=notes)

    share = waiting_share(_trace(tmp_path))
    assert 0 < share < 1
    (report,) = (text for text in notes.notes if text.startswith("traced"))
    assert report == (
        f"traced steps 11 to 20: they waited for data {share:.1%} of the time\n"
        f"  {_trace(tmp_path).parent}"
    )


def test_steps_do_not_wait_for_data_in_memory(tmp_path):
    config = cnn_config(trainer__train_steps=20, trainer__profile_steps="[11, 20]")

    run(config, tmp_path, "train")

    assert waiting_share(_trace(tmp_path)) is None


@pytest.mark.parametrize(("resumed_at", "expected"), [(5, ["traced steps 6 to 8"]), (6, [])])
def test_a_run_that_is_resumed_after_the_first_step_traces_nothing(resumed_at, expected, tmp_path):
    notes = Notes()
    run(toy_config(trainer__train_steps=resumed_at), tmp_path, "train")

    run(toy_config(trainer__profile_steps="[6, 8]"), tmp_path, "train", notes=notes)

    assert _reports(notes) == expected


class _Signal(Callback):
    """Receives SIGTERM at step 10."""

    def on_loop_end(self, run, logs):
        if run.step == 10:
            signal.raise_signal(signal.SIGTERM)


_NAN = {"task__nan_from": 11}


@pytest.mark.parametrize(
    ("steps", "changes", "error", "expected"),
    [
        pytest.param("[5, 9]", {"trainer__steps_per_loop": 7}, None, "5 to 9", id="a longer loop"),
        pytest.param("[5, 9]", {}, None, "5 to 9", id="loops of one step"),
        pytest.param("[16, 90]", {}, None, "16 to 20", id="the end of the run"),
        pytest.param("[3, 90]", _NAN, Diverged, "3 to 12", id="divergence"),
        pytest.param(
            "[6, 90]", {**_NAN, "trainer__recovery_max_trials": 1}, None, "6 to 12", id="recovery"
        ),
        pytest.param("[7, 90]", {}, Interrupted, "7 to 10", id="a signal"),
    ],
)
def test_trace_ends_with_its_last_step_or_with_the_steps_of_the_run(
    steps, changes, error, expected, tmp_path
):
    notes = Notes()
    config = toy_config(
        **{"trainer__steps_per_loop": 1, "trainer__profile_steps": steps, **changes}
    )
    callbacks = [_Signal()] if error is Interrupted else []
    with pytest.raises(error) if error else contextlib.nullcontext():
        run(config, tmp_path, "train", callbacks=callbacks, notes=notes)

    assert _reports(notes) == [f"traced steps {expected}"]
    # The profiler raises an error if it is running.
    tf.profiler.experimental.start(str(tmp_path / "other"))
    tf.profiler.experimental.stop(save=False)


def _warning_of_a_run(folder):
    """Returns what a run of 20 steps says about `profile_steps`."""
    notes = Notes()
    run(toy_config(trainer__profile_steps="[6, 8]"), folder, "train", notes=notes)
    assert records(folder, "train")[-1]["step"] == 20
    (warning,) = [text for text in notes.notes if "profile_steps" in text]
    return warning


def test_training_continues_with_a_warning_if_the_profiler_is_in_use(tmp_path):
    tf.profiler.experimental.start(str(tmp_path / "other"))
    try:
        warning = _warning_of_a_run(tmp_path / "run")
    finally:
        tf.profiler.experimental.stop(save=False)

    assert warning.startswith(
        "warning: trainer.profile_steps: the profiler failed: Another profiler"
    )


def test_training_continues_with_a_warning_if_the_trace_cannot_be_written(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "plugins").write_text("no directory")
    assert "the trace failed: " in _warning_of_a_run(tmp_path)


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
def test_steps_that_cannot_be_traced_are_refused(changes, message):
    with pytest.raises(ConfigError) as caught:
        toy_config(**{"trainer.profile_steps": "[1, 2]", **changes})

    assert message in str(caught.value)
