"""The order of equal keys does not depend on the processor.

NumPy's default `argsort` and its partitions have other code for AVX-512, AVX2 and older processors,
which leave equal keys in different orders.
"""

import ast
from pathlib import Path

import pytest

import orbit_runner

PACKAGE = Path(orbit_runner.__file__).parent


def _unstable_sorts(source):
    """Returns the lines that sort by NumPy, so that equal keys may be in any order."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, of = node.func.attr, node.func.value
        kinds = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
        is_numpy = isinstance(of, ast.Name) and of.id == "np"
        if (name == "argsort" and kinds.get("kind") != "stable") or (
            name == "argpartition" or (is_numpy and name == "partition")
        ):
            lines.append(node.lineno)
    return lines


@pytest.mark.slow
def test_package_sorts_stably():
    violations = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        for line in _unstable_sorts(path.read_text())
    }
    assert violations == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("np.argsort(x)", [1]),
        ("x.argsort(kind='quicksort')", [1]),
        ("np.argpartition(x, 3)", [1]),
        ("np.partition(x, 3)", [1]),
        ("np.argsort(x, kind='stable')", []),
        ("text.partition('=')", []),
    ],
)
def test_unstable_sorts_are_found(source, found):
    assert _unstable_sorts(source) == found
