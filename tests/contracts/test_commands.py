"""What every command promises, for each of them: help, examples, flags, settings, and streams.

The examples of all commands run once, in a process of their own in which nothing can import
TensorFlow; see `tests/support/command_examples.py`.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_runner.cli.completion import candidates
from orbit_runner.cli.flags.values import PathValue
from orbit_runner.cli.main import GROUPS, main
from tests.support.command_examples import (
    Outcome,
    all_commands,
    write_inputs,
)

ROOT = Path(__file__).parents[2]
_COMMANDS = all_commands()
_PATHS = re.compile(r"DIR|FILE|RUN|PATH|EXPERIMENT|WHERE")
# Settings, whose paths are checked with the config.
_SETTINGS = ("data_dir",)
_WRONG_SETTINGS = ("--trainer.train_steps=abc", "--runtime.sed=1", "--no_such_section.seed=1")


@pytest.fixture(params=_COMMANDS, ids=lambda command: command.name)
def command(request):
    return request.param


@pytest.fixture
def words(command, here, finished_run):
    """The first example of a command, in a directory that has its inputs."""
    arguments = shlex.split(command.examples[0])
    write_inputs(command, arguments, here, finished_run)
    return [command.name, *arguments]


def test_every_command_is_in_one_group():
    names = [name for group in GROUPS.values() for name in group]
    modules = ROOT.glob("src/orbit_runner/cli/commands/[!_]*.py")

    assert [*GROUPS] == ["Train", "Look", "Explain", "Ship", "Configure", "Set up"]
    assert sorted(names) == sorted(path.stem for path in modules)


def refusal(words, capsys):
    """Returns the message of a command that must be rejected."""
    assert main(words) == 2
    captured = capsys.readouterr()
    if "--json" in words:
        assert json.loads(captured.out).keys() == {"errors"}
    else:
        assert captured.out == ""
    assert captured.err.startswith("runner: ")
    return captured.err


def test_help_lists_each_flag_with_its_default_and_examples_that_parse(
    command, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as caught:
        main([command.name, "--help"])
    text = capsys.readouterr().out
    assert caught.value.code == 0

    head, _, lines = text.partition("\nexamples:\n")
    assert command.examples
    for example, line in zip(command.examples, lines.splitlines(), strict=True):
        assert line.startswith(f"  runner {command.name} ")
        assert line.endswith(example)
        command.parse(command.parser(), shlex.split(example))
    flat = " ".join(head.split())
    for action in command.parser().arguments:
        if action.help == argparse.SUPPRESS:
            continue
        name = next(iter(action.option_strings), str(action.metavar or action.dest))
        assert name in flat or action.choices
        if action.option_strings and action.default not in (None, False, "", argparse.SUPPRESS):
            assert f"(default: {action.default})" in flat.split(name, 1)[1]


def test_every_path_is_declared(command):
    for action in command.parser().arguments:
        metavar = str(action.metavar or action.dest.upper())
        if action.nargs == 0 or action.help == argparse.SUPPRESS or action.dest in _SETTINGS:
            continue
        if _PATHS.search(metavar):
            assert isinstance(action.type, PathValue), action


def test_flags_are_completed(command):
    flags = {option for action in command.parser().arguments for option in action.option_strings}

    assert {*candidates(f"runner {command.name} --")} & flags


def test_unknown_flag_is_rejected_with_the_nearest_one(command, words, capsys):
    actions = [a for a in command.parser().arguments if a.help != argparse.SUPPRESS]
    options = [option for action in actions for option in action.option_strings]
    option = next((option for option in options if option not in ("-h", "--help")), "")
    misspelled = f"{option or '--unknown'}x"

    message = refusal([words[0], misspelled, *words[1:]], capsys)

    assert f"unknown flag {misspelled}" in message
    assert not option or "; did you mean '--" in message
    assert re.search("see `runner .*--help`", message)


@pytest.mark.parametrize("setting", _WRONG_SETTINGS)
def test_wrong_setting_is_rejected_whether_the_command_takes_settings_or_not(
    setting, words, capsys
):
    assert setting.partition("=")[0] in refusal([*words, setting], capsys)


def test_command_without_settings_rejects_correct_ones(command, words, capsys):
    if command.parser().settings or command.after_dashes:
        pytest.skip("it takes settings")
    message = refusal([*words, "--runtime.seed=3"], capsys)

    assert "--runtime.seed: `runner " in message
    assert "does not accept settings\n" in message
    assert "\nallowed: " in message


@pytest.fixture(scope="module")
def outcomes(finished_run, tmp_path_factory):
    """What the examples of all commands did, in all ways."""
    script = "tests.support.command_examples"
    completed = subprocess.run(
        [sys.executable, "-m", script, tmp_path_factory.mktemp("examples"), finished_run],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert completed.returncode == 0, completed.stderr
    return [Outcome(**json.loads(line)) for line in completed.stdout.splitlines()]


@pytest.fixture
def own(command, outcomes):
    """What the examples of one command did."""
    return [outcome for outcome in outcomes if outcome.command == command.name]


def test_example_ends_with_a_result_or_a_message_in_every_directory(own):
    for outcome in own:
        assert outcome.crash == "", outcome
        if not outcome.stopped and outcome.code not in (0, 4, 6):
            assert outcome.code == 2, outcome
            assert "runner: " in outcome.err, outcome


def test_command_imports_tensorflow_only_after_saying_so(own):
    for outcome in own:
        if outcome.stopped and not outcome.stopped.startswith("other "):
            assert "importing " in outcome.err, outcome


def test_json_is_one_document(own):
    for outcome in own:
        if outcome.way == "json" and outcome.code == 0:
            json.loads(outcome.out)


def test_lost_output_is_an_error_only_if_the_disk_is_full(own):
    printed = {outcome.example: outcome.out for outcome in own if outcome.way == "plain"}
    expected = {outcome.example: outcome.code for outcome in own if outcome.way == "plain"}
    for outcome in own:
        if outcome.stopped or outcome.way not in ("closed pipe", "full disk"):
            continue
        full = outcome.way == "full disk" and printed[outcome.example]
        assert outcome.code == (6 if full else expected[outcome.example]), outcome
