"""The layers of the packages: no import goes to a higher one, and configs need no tensorflow."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.tf_internals import NAMES
from tests.support.source import ROOT, nodes_of, tree_of
from tools.architecture_page import LAYERS, WITHOUT_TENSORFLOW

HEAVY = ("tensorflow", "tf_keras", "keras", "official", "orbit")
# What imports Model Garden, and why it has to. A new module belongs in `model_garden/`.
USES_MODEL_GARDEN = {
    "model_garden/": "runs its experiments",
    "models/": "networks built from its layers",
    "tasks/base.py": "the base class of its tasks is that of ours",
    "tasks/adapter.py": "the base class of its tasks is that of ours",
    "tasks/multitask.py": "the base class of its tasks is that of ours",
    "train/multitask.py": "its samplers of tasks",
    "train/callbacks/own_callbacks.py": "its pruning action",
    "data/images/train_image.py": "its operations on images",
    "tf_internals.py": "its private parts",
}
# Read before tensorflow is imported: the configs of tasks, commands and jobs.
LIGHT = sorted(
    [
        *ROOT.glob("tasks/*/config.py"),
        *ROOT.glob("tasks/*/data.py"),
        *ROOT.glob("cli/**/*.py"),
        *ROOT.glob("jobs/*.py"),
        *ROOT.glob("init/*.py"),
        # This one is the main module of a process that trains.
        *{*ROOT.glob("repeat/*.py")} - {ROOT / "repeat" / "why_process.py"},
        *(ROOT / "checkpoint" / f"{name}.py" for name in ("directory", "latest_checkpoint")),
        *ROOT.glob("launch/**/*.py"),
        *ROOT.glob("datasets/**/*.py"),
        *ROOT.glob("compare/*.py"),
        *ROOT.glob("sweep/**/*.py"),
        *ROOT.glob("serving/formats/*.py"),
        ROOT / "step" / "examples.py",
        ROOT / "step" / "results.py",
        ROOT / "step" / "tensor_comparison.py",
        ROOT / "tf_internals.py",
        *(ROOT / "model_garden" / f"{name}.py" for name in ("catalogue", "loading")),
    ]
)


def imports(nodes: Iterable[ast.AST], package: str) -> Iterator[tuple[str, int]]:
    """Yields the modules that nodes import, with their lines; relative ones made absolute."""
    for statement in nodes:
        if isinstance(statement, ast.Import):
            yield from ((alias.name, statement.lineno) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            parents = package.split(".")[: -statement.level + 1 or None] if statement.level else []
            module = ".".join([*parents, statement.module] if statement.module else parents)
            yield module, statement.lineno
            yield from ((f"{module}.{alias.name}", statement.lineno) for alias in statement.names)


@functools.cache
def imported(path: Path) -> frozenset[tuple[str, int]]:
    """Returns (module, line) of a file's imports."""
    return frozenset(imports(nodes_of(path), package_of(path)))


def imported_at_import(path: Path) -> set[tuple[str, int]]:
    """Returns those that run when the file is imported."""
    run = [
        node
        for statement in tree_of(path).body
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef))
        and not is_for_types(statement)
        for node in ast.walk(statement)
    ]
    return {*imports(run, package_of(path))}


def package_of(path: Path) -> str:
    return ".".join(["orbit_runner", *path.relative_to(ROOT).parent.parts])


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def uses_model_garden(path: Path) -> bool:
    """Returns whether a file imports Model Garden when it runs, not only for its types."""
    statements = [statement for statement in tree_of(path).body if not is_for_types(statement)]
    nodes = [node for statement in statements for node in ast.walk(statement)]
    return any(module.partition(".")[0] == "official" for module, _ in imports(nodes, ""))


def layer_of(module: str) -> str | None:
    """Returns the layer of a module below `orbit_runner`; None if it is in none."""
    prefixes = [name for name in LAYERS if f"{module}.".startswith(f"orbit_runner.{name}.")]
    return max(prefixes, key=len, default=None)


def module_of(path: Path) -> str:
    return ".".join(["orbit_runner", *path.relative_to(ROOT).with_suffix("").parts])


def upward_imports(path: Path) -> list[str]:
    """Returns the imports of a file, inside functions too, that go to a higher layer."""
    own = layer_of(module_of(path))
    assert own is not None
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for module, line in sorted(imported(path), key=lambda pair: pair[::-1])
        if (layer := layer_of(module)) and LAYERS.index(layer) > LAYERS.index(own)
    ]


def heavy_imports(path: Path, imports_of_file: Iterable[tuple[str, int]]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for module, line in sorted(imports_of_file, key=lambda pair: pair[::-1])
        if module.partition(".")[0] in HEAVY
        or module.removeprefix("orbit_runner.tf_internals.") in NAMES
    ]


FILES = [p for p in sorted(ROOT.rglob("*.py")) if p.stem != "__main__" and p.parent != ROOT] + [
    p for p in sorted(ROOT.glob("*.py")) if p.stem not in ("__init__", "__main__")
]


def test_every_package_has_a_layer():
    there = {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}

    assert there - {"__init__", "__main__"} == {name for name in LAYERS if "." not in name}


@pytest.mark.sample(21)
@pytest.mark.parametrize("layer", LAYERS)
def test_no_import_goes_to_a_higher_layer(layer):
    paths = [path for path in FILES if layer_of(module_of(path)) == layer]

    assert paths
    assert [text for path in paths for text in upward_imports(path)] == []


def test_only_named_modules_import_model_garden():
    users = {str(path.relative_to(ROOT)) for path in FILES if uses_model_garden(path)}

    assert [user for user in sorted(users) if not user.startswith((*USES_MODEL_GARDEN,))] == []
    assert [name for name in USES_MODEL_GARDEN if not any(u.startswith(name) for u in users)] == []


def test_imports_form_no_circle():
    modules = {module_of(path): path for path in FILES}
    graph = {
        name: modules.keys() & {module for module, _ in imported(path)} - {name}
        for name, path in modules.items()
    }

    graphlib.TopologicalSorter(graph).prepare()  # Raises CycleError with the circle.


def test_modules_read_the_traits_of_strategies_and_compare_no_names():
    names = STRATEGIES.keys() - {"off"}  # Other settings have this value, too.
    compared = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.Compare)
        and any(
            isinstance(constant, ast.Constant) and constant.value in names
            for constant in ast.walk(node)
        )
    ]

    assert compared == []


@pytest.mark.parametrize("name", WITHOUT_TENSORFLOW)
def test_light_packages_never_import_tensorflow(name):
    paths = [path for path in FILES if layer_of(module_of(path)) == name]

    assert [text for path in paths for text in heavy_imports(path, imported(path))] == []


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_light_module_does_not_import_tensorflow_at_import_time(path):
    assert heavy_imports(path, imported_at_import(path)) == []
