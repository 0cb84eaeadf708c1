"""The completion of commands and flags in shells."""

from __future__ import annotations

import pytest

from orbit_runner.cli.completion import SCRIPTS, candidates
from tests.support.problems import output_of


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("runner lau", ["launch"]),
        ("runner no_such_command --", []),
        ("runner --experi", ["--experiment"]),
        ("runner run --experi", ["--experiment"]),
        ("runner data ", ["list", "get"]),
        ("runner data get --d", ["--dir"]),
        ("runner launch --workers 2 --exp", []),
        ("runner verify runs/a", []),
        ("runner --mode tr", []),
    ],
)
def test_commands_and_flags_are_candidates(line, expected):
    assert candidates(line) == expected


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_command_prints_the_script(shell):
    assert output_of(["--completion", shell]) == f"{SCRIPTS[shell]}\n"


def test_bash_gets_the_words_of_its_line(monkeypatch):
    monkeypatch.setenv("COMP_LINE", "runner show --orig --json")
    monkeypatch.setenv("COMP_POINT", "18")

    # Bash adds the command, the word and the word before.
    assert output_of(["--completion", "--line", "runner", "--orig", "show"]) == "--origins\n"
