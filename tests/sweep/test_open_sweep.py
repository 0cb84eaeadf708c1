"""A directory belongs to one sweep, which may be extended and changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from orbit_runner.errors import RunnerError
from orbit_runner.sweep.definition import Sweep, resolve_base
from orbit_runner.sweep.directory import SweepDirectory, read_changes
from orbit_runner.sweep.open_sweep import Changes, open_sweep
from orbit_runner.utils.signals import Signals
from tests.support.problems import raises
from tests.sweep.sweep_files import TEXT, parsed


class _NoTraining:
    """Starts processes that end at once: these tests train nothing."""

    pid = 0
    cores: tuple[int, ...] = ()

    def start(self, command) -> _NoTraining:
        self.cores = command.cores
        return self

    def poll(self) -> int:
        return 0

    def send_signal(self, number: int) -> None: ...

    def close(self) -> None: ...


def opened(folder: Path, text: str = TEXT, changes: Changes | None = None) -> Sweep:
    file, directory = parsed(text), SweepDirectory(folder / "sweep")
    changes = changes or Changes()
    base = resolve_base(file)
    return open_sweep(directory, file, base, changes, _NoTraining(), (), Signals())()


def test_first_trial_is_checked_with_the_cores_of_all_trials(tmp_path: Path) -> None:
    launcher = _NoTraining()
    file = parsed(TEXT)
    directory = SweepDirectory(tmp_path)

    open_sweep(directory, file, resolve_base(file), Changes(), launcher, (), Signals(), (3,))

    assert launcher.cores == (3,)


def test_new_directory_is_made(tmp_path: Path) -> None:
    sweep = opened(tmp_path)

    assert (sweep.trials, sweep.seeds, sweep.train_steps) == (8, (17,), (60,))
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
        ("train_steps: 60", "train_steps: 80", "overrides.trainer.train_steps: 60 → 80"),
    ],
)
def test_other_sweep_is_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    opened(tmp_path)

    with pytest.raises(RunnerError) as error:
        opened(tmp_path, TEXT.replace(old, new))
    assert expected in str(error.value)
    assert error.value.exit_code == 2


def test_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "run.json").write_text("{}")

    with raises("other-config", "--model_dir"):
        opened(tmp_path)


@pytest.mark.parametrize("text", ["{", "5", "other: 1", 'sweep: !!int ""', "sweep: !!bool x"])
def test_unreadable_file_of_a_sweep_is_named(text: str, tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / "sweep" / "sweep.yaml").write_text(text)

    with raises("unreadable-file"):
        opened(tmp_path)


def test_changes_that_are_not_utf_8_are_named(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / "sweep" / "changes.jsonl").write_bytes(b'{"trials": 9}\n\xff\n')

    with raises("unreadable-file"):
        opened(tmp_path)


def test_budget_and_seeds_are_extended(tmp_path: Path) -> None:
    opened(tmp_path)
    more = TEXT.replace("trials: 8", "trials: 12") + "seeds: 2\n"
    sweep = opened(tmp_path, more)

    assert (sweep.budgets, sweep.seeds) == ((8, 12), (17, 18))
    assert sweep.run_directory(3, 17) == "trials/0003"
    assert sweep.run_directory(3, 18) == "trials/0003-seed-18"
    assert opened(tmp_path, more) == sweep
    assert len(read_changes(SweepDirectory(tmp_path / "sweep"))) == 2
    with raises("other-config"):
        opened(tmp_path)
    with raises("other-config"):
        opened(tmp_path, more.replace("seeds: 2", "seeds: [18, 17]"))


def test_changes_of_the_command_line_are_recorded_once(tmp_path: Path) -> None:
    opened(tmp_path)
    changes = Changes(more_steps=20, exclude=(2,), force=(3,))
    sweep = opened(tmp_path, changes=changes)

    assert (sweep.train_steps, sweep.excluded, sweep.forced) == ((60, 80), {2}, {3})
    # The sweep is not finished, so the same command continues it.
    assert opened(tmp_path, changes=changes) == sweep
    back = opened(tmp_path, changes=Changes(force=(2,)))
    assert (back.excluded, back.forced) == (frozenset(), {2, 3})


@pytest.mark.parametrize(
    ("flag", "changes"), [("--exclude", Changes(exclude=(8,))), ("--force", Changes(force=(-1,)))]
)
def test_trial_that_does_not_exist_is_refused(tmp_path: Path, flag: str, changes: Changes) -> None:
    opened(tmp_path)

    with raises("out-of-range", flag):
        opened(tmp_path, changes=changes)


def test_longer_training_is_refused_if_settings_depend_on_its_length(tmp_path: Path) -> None:
    schedule = "{type: cosine, cosine: {initial_learning_rate: 0.1, decay_steps: auto}}"
    text = TEXT.replace("constant.learning_rate", "cosine.initial_learning_rate").replace(
        "space:", f"  trainer.optimizer_config.learning_rate: {schedule}\nspace:"
    )
    opened(tmp_path, text)

    with raises("not-supported", "--more_steps"):
        opened(tmp_path, text, Changes(more_steps=20))


def test_new_sweep_refuses_changes(tmp_path: Path) -> None:
    with raises("no-effect", "--model_dir"):
        opened(tmp_path, changes=Changes(exclude=(1,)))


def test_first_trial_that_is_killed_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [-9, -9, 0]
    monkeypatch.setattr(_NoTraining, "poll", lambda self: codes.pop(0))

    assert opened(tmp_path).trials == 8
    assert codes == []


def test_failed_first_trial_makes_no_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_NoTraining, "poll", lambda self: 2)

    with raises("failed-trial"):
        opened(tmp_path)
    assert not (tmp_path / "sweep" / "sweep.yaml").exists()
    monkeypatch.undo()
    assert dataclasses.is_dataclass(opened(tmp_path))


def test_changed_experiment_is_refused(tmp_path: Path) -> None:
    experiment = tmp_path / "own.yaml"
    text = TEXT.replace("digits_mlp", str(experiment), 1)
    experiment.write_text("base: digits_mlp\n")
    opened(tmp_path, text)
    experiment.write_text("base: digits_mlp\ntask: {train_data: {global_batch_size: 32}}\n")

    with raises("other-config", "--model_dir"):
        opened(tmp_path, text)


@pytest.mark.parametrize("content", ["", "not: [a, config"])
def test_unusable_base_config_is_named(tmp_path: Path, content: str) -> None:
    opened(tmp_path)
    base = tmp_path / "sweep" / "base.yaml"
    base.write_text(content)

    with raises("unreadable-file"):
        opened(tmp_path)


def test_objective_value_is_part_of_the_sweep(tmp_path: Path) -> None:
    opened(tmp_path)
    with raises("other-config", "--model_dir"):
        opened(tmp_path, TEXT.replace("mode: max", "mode: max, value: best"))


@pytest.mark.parametrize("flag", ["exclude", "force"])
def test_flag_for_a_repeated_trial_names_the_trained_one(tmp_path: Path, flag: str) -> None:
    text = TEXT.replace("{log_uniform: [1.0e-4, 1.0e-2]}", "[0.01]").replace("[0.0, 0.3]", "[0.3]")
    opened(tmp_path, text)

    with raises("set-twice", f"--{flag}"):
        opened(tmp_path, text, Changes(**{flag: (2,)}))
