"""What every command declares: examples that parse, and which arguments are paths."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from orbit_runner.cli.command import Command
from orbit_runner.cli.commands.completion import candidates
from orbit_runner.cli.flags.values import PathValue
from orbit_runner.cli.main import COMMANDS, load_command

ALL = [command for name in COMMANDS for command in load_command(name).commands]
_PATHS = re.compile(r"DIR|FILE|RUN|PATH|EXPERIMENT|WHERE")
# Settings, whose paths are checked with the config.
_SETTINGS = ("data_dir",)


@pytest.fixture(params=ALL, ids=lambda command: command.name)
def command(request: pytest.FixtureRequest) -> Command:
    found: Command = request.param
    return found


def test_help_ends_with_examples_that_parse(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.examples
    shown = command.parser().format_help().split("\nexamples:\n")[1]

    for example, line in zip(command.examples, shown.splitlines(), strict=True):
        assert line.startswith(f"  runner {command.name.split()[0]}")
        assert line.endswith(example)
        command.parse(command.parser(), shlex.split(example))


def test_every_path_is_declared(command: Command) -> None:
    for action in command.parser()._actions:
        shown = str(action.metavar or action.dest.upper())
        if action.nargs == 0 or action.help == argparse.SUPPRESS or action.dest in _SETTINGS:
            continue
        if _PATHS.search(shown):
            assert isinstance(action.type, PathValue), action


def test_flags_are_completed(command: Command) -> None:
    words = [word for word in command.name.split() if not word.startswith("-")]
    flags = {option for action in command.parser()._actions for option in action.option_strings}

    assert {text.rstrip("=.") for text, _ in candidates([*words, "--"])} & flags
