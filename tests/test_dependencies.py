"""What the package imports is declared, the lock file agrees, and so does what names Pythons."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.support.source import FILES, tree_of
from tests.support.source import ROOT as SOURCE

tomllib = pytest.importorskip("tomllib")  # From Python 3.11 on.

ROOT = Path(__file__).resolve().parents[1]
DEVELOPMENT = ("dev", "docs")


class Import(NamedTuple):
    module: str
    place: str
    is_deferred: bool  # inside a function


def imports() -> Iterator[Import]:
    """Yields the imports of the package, without those for type checkers alone."""
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        yield from imports_below(tree_of(path), name, is_deferred=False)


def imports_below(node: ast.AST, file: str, *, is_deferred: bool) -> Iterator[Import]:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        children: list[ast.AST] = [*node.orelse]
    else:
        children = [*ast.iter_child_nodes(node)]
        for module in modules_of(node):
            yield Import(module, f"{file}:{node.lineno}", is_deferred)
    is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    for child in children:
        yield from imports_below(child, file, is_deferred=is_deferred or is_function)


def modules_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module] if node.module and not node.level else []
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        # `importlib.import_module("absl.logging")`
        function = ast.unparse(node.func).rpartition(".")[2]
        return [node.args[0].value] if function in ("import_module", "find_spec") else []
    return []


packages_distributions = functools.cache(metadata.packages_distributions)
files_of = functools.cache(lambda name: metadata.files(name) or [])


@functools.cache
def distributions_of(module: str) -> frozenset[str]:
    """Returns the distributions that have a module; its name, if none is installed."""
    top = module.partition(".")[0]
    names = packages_distributions().get(top, [top])
    if len(names) > 1:  # A namespace, such as `google`.
        folder = f"{'/'.join(module.split('.')[:2])}/"
        names = [n for n in names if any(str(f).startswith(folder) for f in files_of(n))]
    return frozenset(canonicalize_name(name) for name in names)


@functools.cache
def project() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]


def names_in(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def required() -> set[str]:
    return names_in(project()["dependencies"])


def optional() -> set[str]:
    extras = project()["optional-dependencies"]
    return set().union(*(names_in(extras[name]) for name in extras if name not in DEVELOPMENT))


@functools.cache
def third_party() -> list[Import]:
    own = {*sys.stdlib_module_names, "orbit_runner"}
    return [imported for imported in imports() if imported.module.partition(".")[0] not in own]


@pytest.mark.slow
def test_all_imported_packages_are_declared():
    declared = required() | optional()
    missing = [
        imported for imported in third_party() if not distributions_of(imported.module) & declared
    ]

    assert missing == []


def test_optional_packages_are_imported_inside_functions():
    extras = optional() - required()
    early = [
        imported
        for imported in third_party()
        if not imported.is_deferred and distributions_of(imported.module) <= extras
    ]

    assert early == []


def test_all_declared_packages_are_imported():
    used = set().union(*(distributions_of(imported.module) for imported in third_party()))

    # `pyproject.toml` says what needs it.
    assert required() - used == {"setuptools", "etils"}


def locked(python: str) -> dict[str, str]:
    """Returns the versions that `requirements.lock` has for a version of Python on Linux."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }
    versions = {}
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            requirement = Requirement(line.rstrip(" \\"))
            if requirement.marker is None or requirement.marker.evaluate(environment):
                (specifier,) = requirement.specifier
                versions[canonicalize_name(requirement.name)] = specifier.version
    return versions


def supported() -> list[str]:
    """Returns the versions of Python that `requires-python` allows."""
    allowed = SpecifierSet(project()["requires-python"])
    return [f"3.{minor}" for minor in range(8, 30) if f"3.{minor}.1" in allowed]


@pytest.mark.parametrize("python", supported())
def test_the_lock_file_has_what_is_declared(python):
    versions = locked(python)
    requirements = map(
        Requirement, [*project()["dependencies"], *project()["optional-dependencies"]["dev"]]
    )
    wrong = [
        f"{requirement}: {versions.get(canonicalize_name(requirement.name))}"
        for requirement in requirements
        if requirement.name != "orbit-runner"
        and (requirement.marker is None or requirement.marker.evaluate({"python_version": python}))
        and versions.get(canonicalize_name(requirement.name), "") not in requirement.specifier
    ]

    assert wrong == []


def test_the_same_versions_of_python_are_named_everywhere():
    versions = supported()
    first, last = versions[0], versions[-1]
    prefix = "Programming Language :: Python :: 3."
    classifiers = [text for text in project()["classifiers"] if text.startswith(prefix)]
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    matrices = {name: job["strategy"]["matrix"]["python"] for name, job in workflow["jobs"].items()}

    assert [f"3.{text.removeprefix(prefix)}" for text in classifiers] == versions
    assert matrices == dict.fromkeys(matrices, versions)
    for page in ("README.md", "CONTRIBUTING.md", "docs/reproducibility.md", "docs/storage.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert re.findall(r"Python 3\.\d+ to 3\.\d+", text) == [f"Python {first} to {last}"], page
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"requires Python {first} to {last}," in makefile
    bounds = re.findall(r"\((\d), (\d+)\) <= v <= \((\d), (\d+)\)", makefile)
    assert bounds == [(*first.split("."), *last.split("."))]
    template = (SOURCE / "templates/project/pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = "{project()["requires-python"]}"' in template
