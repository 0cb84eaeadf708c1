"""The source files of the package as syntax trees, each of which is parsed once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import orbit_runner

ROOT = Path(orbit_runner.__file__).parent
# `runner init` writes the templates; they are never imported.
FILES = [
    path for path in sorted(ROOT.rglob("*.py")) if "templates" not in path.relative_to(ROOT).parts
]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Returns the syntax tree of a file, which is not to be changed."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Returns all nodes of the syntax tree of a file."""
    return tuple(ast.walk(tree_of(path)))
