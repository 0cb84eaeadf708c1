"""The pages of the reference and the schema can be written, and contain all that there is."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from typing import Any

import pytest

from orbit_runner.cli.main import COMMANDS
from orbit_runner.config.parsing.search_path import experiment_files, fragment_files
from orbit_runner.config.parsing.yaml_files import load_file
from orbit_runner.error_codes import MEANINGS
from tests.support.processes import process
from tools.commands_page import help_text
from tools.reference import DOCS, FILES

ROOT = DOCS.parent
YAML_FILES = sorted(
    path
    for path in [*(ROOT / "experiments").glob("*.yaml"), *(ROOT / "configs").rglob("*.yaml")]
    if path.parent.name not in ("sweeps", "clusters")
)


def in_new_process(*arguments: str) -> str:
    """Runs a program of Python: tests in this process register tasks, which have settings."""
    completed = process(sys.executable, *arguments, cwd=ROOT)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The texts of all files, by name."""
    folder = tmp_path_factory.mktemp("reference")
    in_new_process("-m", "tools.reference", str(folder))
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_all_files_are_written(pages):
    assert {*pages} == {*FILES}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_section_with_its_flags(command, pages, monkeypatch):
    monkeypatch.setenv("COLUMNS", "88")
    section = pages["commands.md"].split(f"\n### runner {command}\n", 1)[1]
    section = re.split("\n##?#? ", section, maxsplit=1)[0]
    text, _, examples = help_text(command).strip().partition("\nexamples:\n")

    assert text.startswith("usage: runner")
    assert f"```text\n{text.strip()}\n```" in section
    assert f"```sh\n{textwrap.dedent(examples).strip()}\n```" in section


def test_every_setting_has_a_row(pages):
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


def test_every_code_of_an_error_has_a_row(pages):
    assert {*re.findall(r"^\| `([a-z-]+)` \| ", pages["errors.md"], re.M)} >= {*MEANINGS}


def test_schema_is_what_the_command_prints(pages):
    assert pages["schema.json"] == in_new_process("-m", "orbit_runner", "show", "--schema")


def plain(node: Any) -> Any:
    children = getattr(node, "children", None)
    return (
        node.value if children is None else {key: plain(child) for key, child in children.items()}
    )


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_each_file_names_the_schema_and_is_valid(path, pages):
    first = path.read_text(encoding="utf-8").splitlines()[0]
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert named is not None, first
    assert (path.parent / named[1]).resolve() == DOCS / "schema.json"

    jsonschema = pytest.importorskip("jsonschema")  # The lock has it from Python 3.11 on.
    validator = jsonschema.Draft7Validator(json.loads(pages["schema.json"]))
    content = plain(load_file(path, path.name, 0))
    assert [error.message for error in validator.iter_errors(content)] == []


def test_all_files_with_the_line_are_experiments_or_fragments():
    assert {*YAML_FILES} <= {*experiment_files().values(), *fragment_files().values()}


def test_the_descriptions_in_the_list_are_not_the_lines_for_editors():
    fragments = json.loads(in_new_process("-m", "orbit_runner", "list", "--json"))["fragments"]

    assert fragments["configs/runtime/cpu.yaml"] == "one replica on the CPU"
    assert [name for name, text in fragments.items() if not text or "schema" in text] == []
