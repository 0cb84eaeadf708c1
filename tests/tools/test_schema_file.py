"""docs/schema.json is what `runner schema` prints, and the YAML files name it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from orbit_runner.config.parsing.search_path import experiment_files, fragment_files
from orbit_runner.config.parsing.yaml_files import load_file

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "schema.json"
YAML_FILES = sorted(
    path
    for path in [*(ROOT / "experiments").glob("*.yaml"), *(ROOT / "configs").rglob("*.yaml")]
    if path.parent.name not in ("sweeps", "clusters")
)


def plain(node: Any) -> Any:
    children = getattr(node, "children", None)
    return node.value if children is None else {key: plain(one) for key, one in children.items()}


@pytest.mark.parametrize("module", ["orbit_runner", "tools.schema_file"])
def test_the_file_is_up_to_date(module: str) -> None:
    # In a process of its own: tests in this one register tasks, which have settings.
    code = "from tools.schema_file import text; print(text(), end='')"
    arguments = ["-m", "orbit_runner", "schema"] if module == "orbit_runner" else ["-c", code]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout == FILE.read_text(encoding="utf-8"), "run `python -m tools.schema_file`"


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_each_file_names_the_schema_and_is_valid(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert named is not None, first
    assert (path.parent / named[1]).resolve() == FILE

    jsonschema = pytest.importorskip("jsonschema")  # The lock has it from Python 3.11 on.
    validator = jsonschema.Draft7Validator(json.loads(FILE.read_text(encoding="utf-8")))
    # As this package reads it, and as an editor with YAML 1.1 does.
    for content in (plain(load_file(path, path.name, 0)), yaml.safe_load(path.read_text())):
        assert [error.message for error in validator.iter_errors(content)] == []


def test_the_schema_is_neither_an_experiment_nor_a_fragment() -> None:
    found = {*experiment_files().values(), *fragment_files().values()}
    assert {*YAML_FILES} <= found
    assert FILE not in {path.resolve() for path in found}


def test_the_descriptions_in_the_list_are_not_the_lines_for_editors() -> None:
    command = [sys.executable, "-m", "orbit_runner", "list", "--json"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    fragments = json.loads(done.stdout)["fragments"]

    assert fragments["configs/runtime/cpu.yaml"] == "one replica on the CPU"
    assert [name for name, text in fragments.items() if not text or "schema" in text] == []
