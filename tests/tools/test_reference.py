"""The pages of the reference can be written, and contain all that there is."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import pytest

from orbit_runner.cli.main import COMMANDS
from orbit_runner.error_codes import MEANINGS
from tools.commands_page import help_text
from tools.reference import DOCS, FILES

ROOT = DOCS.parent


def in_new_process(*arguments: str) -> str:
    """Runs a program of Python: tests in this process register tasks, which have settings."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The texts of all files, by name."""
    folder = tmp_path_factory.mktemp("reference")
    in_new_process("-m", "tools.reference", str(folder))
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_all_files_are_written(pages: dict[str, str]) -> None:
    assert {*pages} == {*FILES}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_section_with_its_flags(
    command: str, pages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "88")
    section = pages["commands.md"].split(f"\n### runner {command}\n", 1)[1]
    section = re.split("\n##?#? ", section, maxsplit=1)[0]
    text, _, examples = help_text(command).strip().partition("\nexamples:\n")

    assert text.startswith("usage: runner")
    assert f"```text\n{text.strip()}\n```" in section
    assert f"```sh\n{textwrap.dedent(examples).strip()}\n```" in section


def test_every_setting_has_a_row(pages: dict[str, str]) -> None:
    code = (
        "from orbit_runner.config.describe import describe_settings\n"
        "from orbit_runner.config.schema.experiment import ExperimentConfig\n"
        "for one in describe_settings(ExperimentConfig()):\n"
        "    one.is_section or print(one.path)\n"
    )
    paths = in_new_process("-c", code).splitlines()
    assert len(paths) > 400
    for path in paths:
        parent, _, name = path.rpartition(".")
        heading = f"## `{parent}`\n" if parent else "## Top level\n"
        section = pages["settings.md"].split(heading, 1)[1].split("\n## ", 1)[0]
        assert f"\n| `{name}` |" in section


def test_every_code_of_an_error_has_a_row(pages: dict[str, str]) -> None:
    assert {*re.findall(r"^\| `([a-z-]+)` \| ", pages["errors.md"], re.M)} >= {*MEANINGS}
