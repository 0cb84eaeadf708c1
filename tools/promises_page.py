"""The page of all promises, from the tests that are marked with `pytest.mark.promise`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_HEAD = """\
# Promises

Each promise has a test that fails if the promise is broken. The tests run real processes on real
files. `make test` runs the quick ones, `make test-slow` the others, and `make soak SUITE=…` more
cases of a test. [Reproducibility](reproducibility.md#promises) says what was measured, and what is
not promised.
"""
TOPICS = {
    "weights": "The same weights",
    "faults": "Nothing that was saved is lost",
    "configs": "Configs",
    "commands": "Commands",
}


def page() -> str:
    """Returns the text of the page."""
    tests: dict[tuple[str, str], list[str]] = {}
    for path in test_files():
        for topic, promise, test in promises_of(path):
            tests.setdefault((topic, promise), []).append(test)
    parts = [_HEAD]
    for topic, title in TOPICS.items():
        rows = "\n".join(
            f"| {promise} | {', '.join(named)} |"
            for (of_topic, promise), named in tests.items()
            if of_topic == topic
        )
        parts.append(f"## {title}\n\n| promise | tests |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def test_files() -> list[Path]:
    """Returns the files of tests, those of the whole runner first."""
    files = (_ROOT / "tests").rglob("test_*.py")
    return sorted(files, key=lambda path: (len(path.parts), path))


def promises_of(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yields the topic and the text of each promise of a file, and the test in Markdown."""
    text = path.read_text(encoding="utf-8")
    if "mark.promise" not in text:
        return
    name = path.relative_to(_ROOT).as_posix()
    body = ast.parse(text).body
    values = {
        target.id: ast.unparse(node.value)
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in body:
        if not isinstance(node, ast.FunctionDef):
            continue
        decorators = [
            part for decorator in node.decorator_list for part in _with_values(decorator, values)
        ]
        suites = "".join(f" (`make soak SUITE={suite}`)" for suite in _suites(name, decorators))
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _is_promise(decorator):
                topic, promise = map(ast.literal_eval, decorator.args)
                yield topic, promise, f"`{name}::{node.name}`{suites}"


def _is_promise(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "pytest.mark.promise"


def _with_values(node: ast.expr, values: dict[str, str]) -> Iterator[str]:
    """Yields the code of a decorator, and of the values of the module that it names."""
    yield ast.unparse(node)
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in values:
            yield values[part.id]


def _suites(name: str, decorators: list[str]) -> list[str]:
    """Returns the suites of the Makefile that run a test: they name its file, folder or mark."""
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    suites = re.findall(r"^SUITE_(\w+) := (.*)$", makefile, re.M)
    return [
        suite
        for suite, arguments in suites
        if any(
            name == word or name.startswith(f"{word}/")
            for word in arguments.split()
            if word.startswith("tests/")
        )
        or any(
            f"mark.{mark}" in code
            for mark in re.findall(r"-m (\w+)", arguments)
            for code in decorators
        )
    ]
