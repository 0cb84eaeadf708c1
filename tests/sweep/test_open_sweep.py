"""A directory belongs to one sweep, which may be extended."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from orbit_runner.errors import RunnerError
from orbit_runner.sweep.definition import Sweep, resolve_base
from orbit_runner.sweep.directory import SweepDirectory, open_sweep
from orbit_runner.utils.signals import SignalGuard
from tests.support.problems import raises
from tests.sweep.sweep_files import TEXT, parsed


def opened(folder: Path, text: str = TEXT) -> Sweep:
    file = parsed(text)
    directory = SweepDirectory(folder / "sweep")
    return open_sweep(directory, file, resolve_base(file), SignalGuard())()


def test_new_directory_is_made(tmp_path):
    sweep = opened(tmp_path)

    assert (sweep.trials, sweep.seeds, sweep.train_steps) == (8, (17,), 60)
    assert {path.name for path in (tmp_path / "sweep").iterdir()} == {
        "base.yaml",
        "claims",
        "sweep.yaml",
    }
    assert opened(tmp_path) == sweep


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[0.0, 0.3]", "[0.0, 0.2]", "space.task.model.dropout_rate"),
        ("[1.0e-4, 1.0e-2]", "[1.0e-4, 1.0e-1]", "learning_rate"),
        ("seed: 1", "seed: 2", "search.seed: 1 → 2"),
        ("type: random", "type: tpe", "search.type: random → tpe"),
        ("keep: 0.5", "keep: 0.4", "search.halving.keep: 0.5 → 0.4"),
        ("hidden_units: [16]", "hidden_units: [8]", "task.model.hidden_units: [16] → [8]"),
        ("mode: max", "mode: min", "objective.mode: max → min"),
        ("mode: max", "mode: max, value: best", "objective.value: not set → best"),
        ("train_steps: 60", "train_steps: 80", "overrides.trainer.train_steps: 60 → 80"),
    ],
)
def test_other_sweep_is_refused(tmp_path, old, new, expected):
    opened(tmp_path)

    with pytest.raises(RunnerError) as error:
        opened(tmp_path, TEXT.replace(old, new))
    assert expected in str(error.value)
    assert error.value.exit_code == 2


def test_directory_with_other_files_is_refused(tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "run.json").write_text("{}")

    with raises("other-config", "--model_dir"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("base.yaml", text) for text in ("", "not: [a, config")),
        *(("sweep.yaml", text) for text in ("", "{", "5", "other: 1")),
        *(("sweep.yaml", text) for text in ('sweep: !!int ""', "sweep: !!bool x")),
    ],
)
def test_unreadable_file_of_a_sweep_is_named(name, text, tmp_path):
    opened(tmp_path)
    (tmp_path / "sweep" / name).write_text(text)

    with raises("unreadable-file"):
        opened(tmp_path)


def test_budget_is_extended(tmp_path):
    opened(tmp_path)
    more = TEXT.replace("trials: 8", "trials: 12")
    sweep = opened(tmp_path, more)

    assert sweep.budgets == (8, 12)
    assert sweep.run_directory(3, 17) == "trials/0003"
    assert opened(tmp_path, more) == sweep
    with raises("other-config"):
        opened(tmp_path)
    with raises("other-config", "--model_dir"):
        opened(tmp_path, f"{more}seeds: 2\n")


def test_signal_ends_the_wait_for_another_process(tmp_path):
    directory = SweepDirectory(tmp_path / "sweep")
    signals = SignalGuard()
    file = parsed(TEXT)
    timer = threading.Timer(0.2, signals.receive, [signal.SIGINT])
    with directory.claims.try_acquire("sweep") as claim:
        assert claim is not None
        timer.start()
        open_sweep(directory, file, resolve_base(file), signals)
    timer.join()
    assert signals.received == signal.SIGINT
    assert not directory.file.exists()


def test_changed_experiment_is_refused(tmp_path):
    experiment = tmp_path / "own.yaml"
    text = TEXT.replace("digits_mlp", str(experiment), 1)
    experiment.write_text("base: digits_mlp\n")
    opened(tmp_path, text)
    experiment.write_text("base: digits_mlp\ntask: {train_data: {global_batch_size: 32}}\n")

    with raises("other-config", "--model_dir"):
        opened(tmp_path, text)
