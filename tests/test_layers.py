"""Who may import whom: the table of floors in the design, held against the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import orbit_runner

ROOT = Path(orbit_runner.__file__).parent
HEAVY = ("tensorflow", "tf_keras", "keras", "official", "orbit")
ABOVE_CONFIG = (
    "runtime", "data", "modeling", "tasks", "training", "train_lib", "cli", "reporting",
)  # fmt: skip

# Package: what it must never import, anywhere in its files.
FORBIDDEN = {
    "errors": (*HEAVY, "config", "registry", "storage", *ABOVE_CONFIG),
    "signals": (*HEAVY, "config", "registry", "storage", *ABOVE_CONFIG),
    "streams": (*HEAVY, "config", "registry", "storage", *ABOVE_CONFIG),
    "storage": (*HEAVY, "config", "registry", *ABOVE_CONFIG),
    "config": (*HEAVY, *ABOVE_CONFIG),
    "registration": (*HEAVY, *ABOVE_CONFIG),
    "registry": (*HEAVY, *ABOVE_CONFIG),
    "runtime": ("tasks", "training", "train_lib", "cli", "reporting"),
    "data": ("tasks", "training", "train_lib", "cli", "reporting"),
    "modeling": ("tasks", "training", "train_lib", "cli", "reporting"),
    "tasks": ("training", "train_lib", "cli", "reporting"),
    "training": ("train_lib", "cli"),
    "official": ("tasks", "training", "train_lib", "cli", "reporting"),
    "train_lib": ("cli",),
    "train_utils": ("cli",),
    "multitask_train_lib": ("cli",),
    "drop_in": ("cli",),
    "experiment_runner": ("cli",),
    "reporting": ("cli",),
    "cli": (),
}
# Read before tensorflow is imported: the configs of tasks, and the commands that only look.
LIGHT = sorted(
    [*ROOT.glob("tasks/*/config.py")]
    + [
        ROOT / "cli" / f"{name}.py"
        for name in (
            *("main", "flags", "show", "list_", "list_official", "diff", "validate"),
            *("verify", "reproduce", "original"),
            *("manifest", "manifest_places"),
            *("data", "export", "predict", "chosen"),
            *("launch", "launch_plan", "launch_start", "server"),
            *("driver_flags", "finetune"),
        )
    ]
    + [*ROOT.glob("runtime/launch/*.py"), *ROOT.glob("data/downloads/*.py")]
    + [ROOT / "official" / f"{name}.py" for name in ("catalogue", "loading", "adopt")]
)


def imports(node: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """Yields the modules that a tree imports, with their lines; relative ones made absolute."""
    for found in ast.walk(node):
        if isinstance(found, ast.Import):
            yield from ((alias.name, found.lineno) for alias in found.names)
        elif isinstance(found, ast.ImportFrom):
            parents = package.split(".")[: -found.level + 1 or None] if found.level else []
            module = ".".join([*parents, found.module] if found.module else parents)
            yield module, found.lineno
            yield from ((f"{module}.{alias.name}", found.lineno) for alias in found.names)


def imported(path: Path, *, at_import: bool = False) -> set[tuple[str, int]]:
    """Returns (module, line) of a file; only what importing the file imports where asked."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ".".join(["orbit_runner", *path.relative_to(ROOT).parent.parts])
    if at_import:
        tree.body = [
            node for node in tree.body
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef))
            and not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        ]  # fmt: skip
    return set(imports(tree, package))


def files(name: str) -> list[Path]:
    return sorted((ROOT / name).rglob("*.py")) if (ROOT / name).is_dir() else [ROOT / f"{name}.py"]


def breaches(path: Path, forbidden: tuple[str, ...], *, at_import: bool = False) -> list[str]:
    names = {name if name in HEAVY else f"orbit_runner.{name}" for name in forbidden}
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for module, line in sorted(imported(path, at_import=at_import), key=lambda found: found[1])
        if any(module == name or module.startswith(f"{name}.") for name in names)
    ]


def test_every_package_has_a_floor() -> None:
    there = {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}

    assert there - {"__init__", "__main__"} == {*FORBIDDEN}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_floor_imports_what_stands_above_it(package: str) -> None:
    found = [text for path in files(package) for text in breaches(path, FORBIDDEN[package])]

    assert found == []


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_is_read_before_tensorflow_does_not_import_it(path: Path) -> None:
    assert breaches(path, HEAVY, at_import=True) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import tensorflow as tf", ["tensorflow"]),
        ("def f():\n    from orbit_runner import cli", ["orbit_runner", "orbit_runner.cli"]),
        ("from . import cli", ["orbit_runner.config", "orbit_runner.config.cli"]),
        ("from .. import cli", ["orbit_runner", "orbit_runner.cli"]),
        ("from ..cli.main import main", ["orbit_runner.cli.main", "orbit_runner.cli.main.main"]),
    ],
)
def test_imports_of_every_form_are_seen(text: str, expected: list[str]) -> None:
    assert [module for module, _ in imports(ast.parse(text), "orbit_runner.config")] == expected
