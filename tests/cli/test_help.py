"""Help texts, lists of allowed values, and hints."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.cli.command import Command
from orbit_runner.cli.commands.run import COMMAND
from orbit_runner.cli.main import main
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.modes import FINE_TUNING, MODES
from orbit_runner.config.schema.optimizers import OptimizerChoice
from tests.cli.test_commands import ALL

ROOT = Path(__file__).parents[2]
RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Runs a command in this process; returns its exit code and what it printed."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as error:
            code = int(error.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_help_shows_the_default_of_every_flag_that_has_one(
    run_command: RunCommand, command: Command
) -> None:
    code, text, _ = run_command(*command.name.split(), "--help")

    assert code == 0
    shown = " ".join(text.split())
    for action in command.parser()._actions:
        if action.option_strings and action.default not in (None, False, "", argparse.SUPPRESS):
            assert action.help
            assert f"(default: {action.default})" in shown.split(action.option_strings[0], 1)[1]


def test_mode_help_lists_every_mode_and_the_default(run_command: RunCommand) -> None:
    _, text, _ = run_command("run", "--help")

    assert f"{', '.join((*MODES, FINE_TUNING))} (default: train_and_eval)" in text
    listed = run_command("list")[1].split("modes:\n")[1]
    assert [*map(str.strip, listed.splitlines())] == [*MODES, FINE_TUNING]
    message = run_command("run", "--experiment=digits", "--mode=x")[2]
    assert f"allowed: {', '.join(sorted((*MODES, FINE_TUNING)))}" in message


@pytest.mark.parametrize(
    "path", [*ROOT.glob("docs/*.md"), ROOT / "README.md"], ids=lambda p: p.name
)
def test_docs_spell_flags_as_help_does(path: Path) -> None:
    flags = {
        *("max_restarts", "data_workers", "gpus_per_worker"),
        *(option.lstrip("-") for a in COMMAND.parser()._actions for option in a.option_strings),
    }
    dashed = re.findall(r"--([a-z]+(?:-[a-z]+)+)", path.read_text(encoding="utf-8"))

    assert [name for name in dashed if name.replace("-", "_") in flags] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["digits"], "to run an experiment: runner run --experiment=digits"),
        (["configs/runtime/cpu.yaml"], "runner run --experiment=configs/runtime/cpu.yaml"),
        (["train"], "to train: runner run --mode=train --experiment=NAME"),
        (["eval"], "to eval: runner run --mode=eval --experiment=NAME"),
        (["run", "--experiment=digits", "--task.model.filters[0]=3"], "--task.model.filters[0]: a list can only be set as a whole, such as --task.model.filters='[1, 2]'"),
    ],
)  # fmt: skip
def test_misplaced_argument_gets_a_hint_with_the_correct_command(
    run_command: RunCommand, arguments: list[str], expected: str
) -> None:
    code, _, message = run_command(*arguments)

    assert code == 2
    assert expected in message


def test_unrecognizable_command_gets_no_hint(run_command: RunCommand) -> None:
    assert "\nto " not in run_command("nonsense")[2]


def test_help_command_prints_the_same_as_help_flag(run_command: RunCommand) -> None:
    assert run_command("help", "show") == run_command("show", "--help")


@pytest.mark.parametrize("name", ["slide", "adafactor"])
def test_rejected_optimizer_is_not_among_allowed_values(name: str) -> None:
    for choice, expected in ((name, "does not include it"), ("no_such", "unknown optimizer")):
        text = f"trainer.optimizer_config.optimizer.type={choice}"
        with pytest.raises(ConfigError, match=expected) as caught:
            resolve(Request(experiment="digits", params_overrides=(text,)))

        message = caught.value.problems[0].message
        allowed = message.partition("\nallowed: ")[2].split(", ")
        assert name not in allowed
        assert {*allowed} == {*OptimizerChoice.available()}
