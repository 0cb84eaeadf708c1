"""Help texts, lists of allowed values, and hints."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.modes import FINE_TUNING, MODES
from orbit_runner.config.schema.optimizers import OptimizerChoice
from tests.support.problems import fails, raises

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


@pytest.mark.parametrize("name", ["slide", "adagrad"])
def test_rejected_optimizer_is_not_among_allowed_values(name):
    for choice in (name, "no_such"):
        text = f"trainer.optimizer_config.optimizer.type={choice}"
        with raises("not-allowed", "trainer.optimizer_config.optimizer.type") as caught:
            resolve(Request(experiment="digits", params_overrides=(text,)))

        message = caught.value.problems[0].message
        allowed = message.partition("\nallowed: ")[2].split(", ")
        assert name not in allowed
        assert {*allowed} == {*OptimizerChoice.choices()}
