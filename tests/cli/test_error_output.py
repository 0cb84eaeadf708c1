"""How a command reports an error: as text, and with `--json` as an object for scripts too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbit_runner.cli.main import main
from orbit_runner.errors import Diverged, ExportFailed, RunnerError


def errors_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    """Runs a command that fails, and returns the errors that it prints as JSON."""
    assert main([*arguments, "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("runner: ")
    assert printed.out.count("\n") == 1
    document = json.loads(printed.out)
    assert [*document] == ["errors"]
    errors: list[dict[str, Any]] = document["errors"]
    assert all([*error] == ["code", "path", "origin", "message"] for error in errors)
    return errors


@pytest.mark.parametrize("command", ["show", "inspect"])
def test_each_problem_of_a_config_is_an_object(command, tmp_path, capsys):
    file = tmp_path / "a.yaml"
    file.write_text("trainer:\n  summary_interval: -4\n  train_stepz: 3\n")
    flags = ["--experiment=digits", f"--config_file={file}", "--runtime.seed=x"]

    errors = errors_of(capsys, command, *flags)

    assert {(error["code"], error["path"], *error["origin"].values()) for error in errors} == {
        ("out-of-range", "trainer.summary_interval", str(file), 2),
        ("unknown-setting", "trainer.train_stepz", str(file), 3),
        ("wrong-type", "runtime.seed", "--runtime.seed", None),
    }
    messages = {error["path"]: error["message"] for error in errors}
    assert messages["trainer.summary_interval"] == "got -4, allowed: at least 1"


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["runs", "nowhere"], "missing-file", "DIR"),
        (["show", "--experiment=digitz"], "unknown-name", "--experiment"),
        (["shwo"], "unknown-command", ""),
    ],
)
def test_other_error_is_one_object(arguments, code, path, here, capsys):
    (here / "runs").mkdir()

    (error,) = errors_of(capsys, *arguments)

    assert (error["code"], error["path"], error["origin"]) == (code, path, None)
    assert not error["message"].startswith(f"{path}:")


def test_without_the_flag_nothing_is_printed_to_standard_output(capsys):
    assert main(["show", "--experiment=digitz"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (Diverged("the loss is NaN"), "diverged", 1),
        (RunnerError("of a task without codes"), "error", 1),
        # The results have been printed, and contain the reason.
        (ExportFailed("no"), "export-failed", 0),
    ],
)
def test_error_of_a_run(error, code, shown, monkeypatch, capsys):
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr("orbit_runner.cli.main._dispatch", fail)

    assert main(["run", "--json"]) == error.exit_code
    printed = capsys.readouterr()
    assert printed.err == f"runner: {error}\n"
    assert [json.loads(line)["errors"][0]["code"] for line in printed.out.splitlines()] == (
        [code] * shown
    )


def test_interruption_is_an_error_too(monkeypatch, capsys):
    def interrupt(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("orbit_runner.cli.main._dispatch", interrupt)

    assert main(["runs", "--json"]) == 130
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert (error["code"], error["message"]) == ("interrupted", "interrupted")
