"""Help texts, lists of allowed values, and hints."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.cli.commands.run import COMMAND
from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.modes import FINE_TUNING, MODES
from orbit_runner.config.schema.optimizers import OptimizerChoice
from tests.support.problems import fails, raises

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


def test_mode_help_lists_every_mode_and_the_default(run_command: RunCommand) -> None:
    _, text, _ = run_command("run", "--help")

    assert f"{', '.join((*MODES, FINE_TUNING))} (default: train_and_eval)" in text
    listed = run_command("list")[1].split("modes:\n")[1]
    assert [*map(str.strip, listed.splitlines())] == [*MODES, FINE_TUNING]
    error = fails(["run", "--experiment=digits", "--mode=x"], "not-allowed", "--mode")
    assert f"allowed: {', '.join(sorted((*MODES, FINE_TUNING)))}" in str(error)


@pytest.mark.parametrize(
    "path", [*ROOT.glob("docs/*.md"), ROOT / "README.md"], ids=lambda p: p.name
)
def test_docs_spell_flags_as_help_does(path: Path) -> None:
    flags = {
        "gpus_per_worker",
        *(option.lstrip("-") for a in COMMAND.parser()._actions for option in a.option_strings),
    }
    dashed = re.findall(r"--([a-z]+(?:-[a-z]+)+)", path.read_text(encoding="utf-8"))

    assert [name for name in dashed if name.replace("-", "_") in flags] == []


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["nonsense"], "unknown-command", ""),
        (["digits"], "unknown-command", ""),
        (["configs/runtime/cpu.yaml"], "unknown-command", ""),
        (["train"], "unknown-command", ""),
        (["eval"], "unknown-command", ""),
        (["run", "--experiment=digits", "--task.model.filters[0]=3"], "wrong-type", "--task.model.filters[0]"),
    ],
)  # fmt: skip
def test_misplaced_argument_gets_a_hint_if_its_meaning_is_known(
    arguments: list[str], code: str, path: str
) -> None:
    error = fails(arguments, code, path)

    assert ("\nto " in str(error)) == (code == "unknown-command" and arguments != ["nonsense"])


@pytest.mark.parametrize(
    "arguments", [("--help",), ("list",), ("data", "list"), ("help", "trainer")]
)
def test_descriptions_are_broken_into_lines_in_a_terminal_only(
    arguments: tuple[str, ...],
    run_command: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_a_file = run_command(*arguments)[1]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    in_a_terminal = run_command(*arguments)[1]

    assert max(map(len, in_a_file.splitlines())) > 80
    assert max(map(len, in_a_terminal.splitlines())) <= 80
    assert in_a_terminal.split() == in_a_file.split()


def test_usage_of_a_group_fits_in_80_columns(run_command: RunCommand) -> None:
    usage = run_command("data", "--help")[1].partition("\nexamples:\n")[0]

    assert [line for line in usage.splitlines() if len(line) > 80] == []


def test_help_command_prints_the_same_as_help_flag(run_command: RunCommand) -> None:
    assert run_command("help", "show") == run_command("show", "--help")


@pytest.mark.parametrize("name", ["slide", "adafactor"])
def test_rejected_optimizer_is_not_among_allowed_values(name: str) -> None:
    for choice in (name, "no_such"):
        text = f"trainer.optimizer_config.optimizer.type={choice}"
        with raises("not-allowed", "trainer.optimizer_config.optimizer.type") as caught:
            resolve(Request(experiment="digits", params_overrides=(text,)))

        message = caught.value.problems[0].message
        allowed = message.partition("\nallowed: ")[2].split(", ")
        assert name not in allowed
        assert {*allowed} == {*OptimizerChoice.choices()}
