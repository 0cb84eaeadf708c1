"""Help texts, lists of allowed values, and hints."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.schema.modes import FINE_TUNING, MODES
from tests.support.problems import fails

RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_command(capsys, monkeypatch):
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


def test_mode_help_lists_every_mode_and_the_default(run_command):
    _, text, _ = run_command("run", "--help")

    assert f"{', '.join((*MODES, FINE_TUNING))} (default: train_and_eval)" in text
    listed = run_command("list")[1].split("modes:\n")[1]
    assert [*map(str.strip, listed.splitlines())] == [*MODES, FINE_TUNING]
    error = fails(["run", "--experiment=digits", "--mode=x"], "not-allowed", "--mode")
    assert f"allowed: {', '.join(sorted((*MODES, FINE_TUNING)))}" in str(error)


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["nonsense"], "unknown-command", ""),
        (["digits"], "unknown-command", ""),
        (["run", "--experiment=digits", "--task.model.filters[0]=3"], "wrong-type", "--task.model.filters[0]"),
    ],
)  # fmt: skip
def test_misplaced_argument_is_an_error(arguments, code, path):
    fails(arguments, code, path)


def test_help_command_prints_the_same_as_help_flag(run_command):
    assert run_command("help", "show") == run_command("show", "--help")
