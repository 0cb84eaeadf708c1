"""Toy runs with all kinds of histories are reproduced in this process."""

import json
import os
import signal

import pytest

from orbit_runner import Callback
from orbit_runner.checkpoint.latest_checkpoint import latest_intact_record
from orbit_runner.compare.histories import compare_runs
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.errors import Diverged, Interrupted, first_line
from orbit_runner.repeat.plan import Repetition
from orbit_runner.repeat.rerun import rerun
from orbit_runner.reporting.progress.lines import QuietProgress
from orbit_runner.run_directory.run_reader import read_history
from tests.support.configs import keep_best
from tests.support.problems import raises
from tests.support.toy import run, toy_config


def _config(**changes):
    """Returns a config whose evaluations change the state: best result and early stopping."""
    watched = {
        **keep_best("validation_loss"),
        "trainer__early_stopping__patience": 50,
        "trainer__checkpoint_interval": 4,
    }
    return toy_config(**{**watched, **changes})


def _attempt(folder, outcome="done", **values):
    path = folder / "run.json"
    before = json.loads(path.read_text())["attempts"] if path.exists() else []
    attempt = {"argv": ["runner"], "mode": "train_and_eval", "outcome": outcome, **values}
    path.write_text(json.dumps({"attempts": [*before, attempt]}))


def _again(config, folder, *callbacks):
    history = read_history(folder / "a")
    record = latest_intact_record(history.checkpoints)
    steps = Repetition(config=ResolvedConfig(config, {}), history=history, stop=record.step)
    return rerun(steps, folder / "b", QuietProgress(), callbacks)


def _parting(folder):
    left, right = read_history(folder / "a"), read_history(folder / "b")
    return compare_runs(left, right, step=left.checkpoints.steps()[-1])


def _equal(config, folder, steps):
    assert _again(config, folder) is None
    diff = _parting(folder)
    assert diff.equal, diff
    assert list(diff.compared) == steps


def _interrupt(config, folder, step):
    """Trains until Ctrl-C arrives in the loop that ends at the given step."""

    class Signals(Callback):
        def on_loop_end(self, run, logs):
            if run.step >= step:
                os.kill(os.getpid(), signal.SIGINT)

    one_by_one = config.replace(trainer=config.trainer.replace(steps_per_loop=1))
    with pytest.raises(Interrupted):
        run(one_by_one, folder, callbacks=[Signals()])
    _attempt(folder, "Interrupted: SIGINT")


_SLOW = pytest.mark.slow
_AVERAGED = {"trainer__optimizer_config__ema__average_decay": 0.5}
_RECOVERED = {
    "task__nan_from": 10,
    "trainer__recovery_max_trials": 1,
    "trainer__train_steps": 17,
}


@pytest.mark.parametrize(
    ("changes", "interrupted", "steps"),
    [
        pytest.param({"trainer__train_steps": 11}, 0, [4, 8, 11], id="finished"),
        pytest.param({}, 8, [4, 8], id="interrupted after a checkpoint", marks=_SLOW),
        pytest.param({}, 10, [4, 8, 10], id="interrupted after an evaluation", marks=_SLOW),
        pytest.param({}, 7, [4, 8, 12, 16, 20], id="interrupted and resumed", marks=_SLOW),
        pytest.param(_AVERAGED, 7, [4, 7], id="averaged", marks=_SLOW),
        pytest.param(_RECOVERED, 0, [0, 4, 8, 12, 16, 17], id="recovered", marks=_SLOW),
    ],
)
def test_run_is_reproduced_exactly(changes, interrupted, steps, tmp_path):
    config = _config(**changes)
    if interrupted:
        _interrupt(config, tmp_path / "a", interrupted)
        assert interrupted in read_history(tmp_path / "a").fingerprints
    if steps[-1] > interrupted:
        run(config, tmp_path / "a")
        _attempt(tmp_path / "a", step=steps[-1])
    assert read_history(tmp_path / "a").checkpoints.steps()[-1] == steps[-1]
    _equal(config, tmp_path, steps)
    assert read_history(tmp_path / "b").attempts[0]["outcome"] in ("done", "left")
    assert (tmp_path / "b" / "config.yaml").exists()


@pytest.mark.slow
def test_run_extended_by_more_steps_is_reproduced_exactly(tmp_path):
    """Step 6, the last step at first, was evaluated; the best result may come from it."""
    for steps in (6, 9):
        config = _config(trainer__train_steps=steps, task__batch_norm=True)
        run(config, tmp_path / "a")
        _attempt(tmp_path / "a", step=steps)
    _equal(config, tmp_path, [4, 6, 8, 9])


@pytest.mark.slow
@pytest.mark.parametrize("length", [{}, {"trainer__train_steps": 0, "trainer__train_epochs": 8}])
def test_steps_of_a_schedule_that_follows_the_run_are_those_of_the_whole_run(length, tmp_path):
    """Only the config of a branch that has not trained yet has `auto` instead of a number."""
    rate = {"type": "cosine", "cosine": {"initial_learning_rate": 0.1, "decay_steps": "auto"}}
    config = _config(trainer__optimizer_config__learning_rate=rate, **length)
    run(config, tmp_path / "a")
    _attempt(tmp_path / "a", step=20)
    for path in (tmp_path / "a" / "checkpoints").glob("ckpt-20.*"):
        path.unlink()
    _equal(config, tmp_path, [4, 8, 12, 16])


@pytest.mark.slow
def test_run_ended_by_early_stopping_is_reproduced_exactly(tmp_path):
    config = _config(trainer__early_stopping__threshold=0.5, trainer__train_steps=1000)
    run(config, tmp_path / "a")
    last = read_history(tmp_path / "a").checkpoints.steps()[-1]
    assert last < 1000
    _attempt(tmp_path / "a", step=last)
    assert _again(config, tmp_path) is None
    assert _parting(tmp_path).equal


@pytest.mark.slow
def test_diverged_run_is_reproduced_exactly(tmp_path):
    config = _config(task__nan_from=10)
    with pytest.raises(Diverged):
        run(config, tmp_path / "a")
    _attempt(tmp_path / "a", "Diverged: …")
    _equal(config, tmp_path, [4, 8])


@pytest.mark.slow
def test_mirrored_run_is_reproduced_exactly(tmp_path):
    config = _config(
        runtime__distribution_strategy="mirrored", runtime__num_virtual_devices=2,
        trainer__train_steps=10,
    )  # fmt: skip
    run(config, tmp_path / "a", strategy="mirrored2")
    _attempt(tmp_path / "a", step=10)
    assert _again(config, tmp_path) is None
    assert _parting(tmp_path).equal
    record = latest_intact_record(read_history(tmp_path / "b").checkpoints)
    assert record.strategy == "MirroredStrategy × 2"


@pytest.mark.slow
def test_divergence_of_the_rerun_is_reported(tmp_path):
    run(_config(), tmp_path / "a")
    error = _again(_config(task__nan_from=10), tmp_path)
    assert isinstance(error, Diverged)
    assert first_line(error) == "training diverged: the mean loss of steps 11 to 12 is nan"
    diff = _parting(tmp_path)
    assert not diff.equal
    assert (diff.first, diff.right, diff.last_equal) == (None, None, 8)


@pytest.mark.slow
def test_exception_in_the_rerun_is_reported(tmp_path):
    class Breaks(Callback):
        def on_evaluate(self, run, logs):
            raise ZeroDivisionError("by\nzero")

    run(_config(), tmp_path / "a")
    assert isinstance(_again(_config(), tmp_path, Breaks()), ZeroDivisionError)
    (attempt,) = read_history(tmp_path / "b").attempts
    assert attempt["outcome"] == "ZeroDivisionError: by\nzero"


@pytest.mark.slow
def test_ctrl_c_during_the_rerun_raises_interrupted(tmp_path):
    class Signals(Callback):
        def on_loop_end(self, run, logs):
            os.kill(os.getpid(), signal.SIGINT)

    config = _config()
    run(config, tmp_path / "a")
    for end in ({}, {"outcome": "done", "step": 20}):
        _attempt(tmp_path / "a", **{"outcome": "", **end})
        with pytest.raises(Interrupted):
            _again(config, tmp_path, Signals())


def test_rerun_rejects_gin_bindings_that_match_nothing(tmp_path):
    run(_config(), tmp_path / "a")
    config = _config(task__nan_from=10)
    config = config.replace(gin_bindings=["no_such.thing = 1"])
    with raises("bad-syntax"):
        _again(config, tmp_path)
