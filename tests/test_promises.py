"""Each promise of docs/reproducibility.md names a test that exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/reproducibility.md"
_TEST = re.compile(r"`(tests/[\w/.]+\.py)::(\w+)`")
_TARGET = re.compile(r"`make ([\w-]+)(?: SUITE=(\w+))?`")


def promises() -> list[tuple[str, str]]:
    """Returns the rows of all tables whose columns are `promise` and `test`."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    tables = re.findall(r"^\| promise \| test \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.M)
    rows = [line.strip("| \n").split(" | ") for body in tables for line in body.splitlines()]
    assert all(len(row) == 2 for row in rows)
    assert len(rows) > 40
    return [(promise, test) for promise, test in rows]


def problems(test: str, root: Path = ROOT) -> Sequence[str]:
    """Returns what is wrong with the test of a promise."""
    named = _TEST.findall(test)
    makefile = (root / "Makefile").read_text("utf-8")
    targets = {"", *re.findall(r"^(\w[\w-]*):", makefile, re.M)}
    suites = {"", *re.findall(r"^SUITE_(\w+)", makefile, re.M)}
    return [
        *([] if named else ["no test is named"]),
        *(f"{path} has no {name}" for path, name in named if name not in functions(root / path)),
        *(f"no target {name}" for name, _ in _TARGET.findall(test) if name not in targets),
        *(f"no suite {suite}" for _, suite in _TARGET.findall(test) if suite not in suites),
    ]


def functions(path: Path) -> set[str]:
    """Returns the names of the tests of a file; none if there is no file."""
    if not path.exists():
        return set()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("promise", "test"), promises(), ids=[row[0] for row in promises()])
def test_promise_names_a_test_that_exists(promise, test):
    assert problems(test) == []
