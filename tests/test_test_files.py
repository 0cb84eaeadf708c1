"""What holds for the tests themselves: no helper exists twice, none acts by a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The only tests that import private parts of TensorFlow or Keras, and why `tf_internals` and public
# names do not do.
IMPORT_PRIVATE_PARTS = {
    "tests/determinism/test_randomness.py": "an op that has no public name",
    "tests/distribute/tpu/test_tpu_strategy.py": "reads a compiled graph",
    "tests/serving/test_export.py": "reads a SavedModel",
    "tests/inspection/test_scale.py": "sees which gradients are reduced",
    "tests/utils/test_autograph.py": "sees which functions are converted",
}
PRIVATE = (
    "tensorflow.python",
    "tensorflow.core",
    "tensorflow.compiler",
    "tf_keras.src",
    "keras.src",
)


def test_no_function_is_defined_in_two_files() -> None:
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "tests").rglob("*.py"))
    }
    assert twins(sources) == []


def twins(sources: Mapping[str, str]) -> list[str]:
    """Returns the functions that several files define, apart from names, docstrings and types."""
    places: dict[str, dict[str, str]] = {}
    for path, text in sources.items():
        body = ast.parse(text).body
        for node in [each for each in body if isinstance(each, ast.FunctionDef)]:
            name = f"{path}:{node.lineno} {node.name}"
            places.setdefault(meaning(node, body), {})[path] = name
    return [" = ".join(found.values()) for found in places.values() if len(found) > 1]


def meaning(function: ast.FunctionDef, body: Sequence[ast.stmt]) -> str:
    """Returns a text that is equal for functions that do the same in the same way.

    Constants of the module have the same meaning if their definitions are equal.
    """
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    constants = [
        ast.dump(node)
        for node in body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and bound_names(node) & used
    ]
    arguments = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own = arguments | bound_names(function)
    if ast.get_docstring(function) is not None:
        function.body = function.body[1:]
    function.name = "_"
    return "\n".join([ast.dump(_Renamed(own).visit(function)), *constants])


def bound_names(node: ast.AST) -> set[str]:
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


class _Renamed(ast.NodeTransformer):
    """Numbers the names of a function, and removes its types."""

    def __init__(self, names: set[str]) -> None:
        self._names, self._numbers = names, dict[str, str]()

    def _number(self, name: str) -> str:
        return self._numbers.setdefault(name, f"_{len(self._numbers)}")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        node.arg = self._number(node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._names:
            node.id = self._number(node.id)
        return node


@pytest.mark.parametrize(
    ("second", "twin"),
    [
        ("def b(y: str) -> int:\n    'A text.'\n    n = len(y)\n    return n + 1\n", True),
        ("def b(y):\n    n = len(y)\n    return n + 2\n", False),
        ("def b(y):\n    n = sum(y)\n    return n + 1\n", False),
        ("@fixture\ndef b(y):\n    n = len(y)\n    return n + 1\n", False),
    ],
)
def test_twins_are_found_under_other_names(second: str, twin: bool) -> None:
    first = "def a(x):\n    length = len(x)\n    return length + 1\n"
    assert twins({"a.py": first, "b.py": second}) == (["a.py:1 a = b.py:1 b"] if twin else [])
    assert twins({"a.py": f"{first}\n{first}"}) == []


@pytest.mark.slow
def test_only_listed_tests_import_private_parts_of_tensorflow() -> None:
    importing = {
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if any(f"{name}.".startswith(PRIVATE) for name in imports(path.read_text("utf-8")))
    }
    assert importing == {*IMPORT_PRIVATE_PARTS}


def imports(text: str) -> Iterator[str]:
    """Yields the modules that a file imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_no_fixture_acts_by_the_name_of_a_test() -> None:
    found = [
        place
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for place in uses_of_test_names(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ]
    assert found == []


def uses_of_test_names(path: str, text: str) -> Iterator[str]:
    """Yields the conditions of a file that read the name of a test."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            condition = ast.unparse(node.test)
            if any(f"request.{name}" in condition for name in ("node.name", "node.nodeid")):
                yield f"{path}:{node.lineno}"


def test_use_of_a_name_is_found() -> None:
    text = "def f(request):\n    if 'x' in request.node.name:\n        return 1\n"
    assert list(uses_of_test_names("a.py", text)) == ["a.py:2"]
    assert list(uses_of_test_names("a.py", "x = f'{request.node.name}'")) == []
