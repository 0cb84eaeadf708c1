"""docs/commands.md shows what the commands print for `--help`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from orbit_runner.cli.main import COMMANDS
from tools.commands_page import help_text

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "commands.md"


def test_the_page_is_up_to_date() -> None:
    # In a process of its own: other tests register tasks, which help texts would list.
    code = "from tools.commands_page import page; print(page(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "88"},
        check=True,
        capture_output=True,
        text=True,
    )
    expected = PAGE.read_text(encoding="utf-8")
    assert done.stdout == expected, "run `python -m tools.commands_page`"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_section_with_its_flags(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "88")
    section = PAGE.read_text(encoding="utf-8").split(f"\n### runner {command}\n", 1)[1]
    section = re.split("\n##?#? ", section, maxsplit=1)[0]
    text, _, examples = help_text(command).strip().partition("\nexamples:\n")

    assert text.startswith("usage: runner")
    assert f"```text\n{text.strip()}\n```" in section
    assert f"```sh\n{textwrap.dedent(examples).strip()}\n```" in section
