"""Finds what the installed Model Garden registers, by reading its sources without importing it."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.errors import unknown_name_message

PACKAGE = "official"
PREFIX = f"{PACKAGE}/"
_EXPERIMENT = "register_config_factory"
_TASK = "register_task_cls"
# Decorators that register a project's networks and data loaders when their modules are imported.
_PARTS = (
    "register_backbone_builder",
    "register_decoder_builder",
    "register_model_builder",
    "register_data_loader_cls",
    "bind",
)
# A regular expression, because parsing all the files would take five times as long at each start.
_DECORATOR = re.compile(
    rf"""^@(?:\w+\.)*(?P<kind>{"|".join((_EXPERIMENT, _TASK, *_PARTS))})"""
    r"""\(\s*(?:(?P<quote>['"])(?P<text>.+?)(?P=quote)|(?P<names>[\w.]+))""",
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True)
class Registration:
    """A decorator at the top level of a module that registers something."""

    kind: str  # the name of the decorator, such as `register_config_factory`
    name: str  # its argument: a string, or the last part of a dotted name
    module: str


@functools.cache
def experiments() -> dict[str, Registration]:
    """Returns all experiments that modules of Model Garden register, sorted by name."""
    registered = (r for r in registrations() if r.kind == _EXPERIMENT)
    return {r.name: r for r in sorted(registered, key=lambda r: r.name)}


def unknown_experiment(name: str, own: Iterable[str] = ()) -> ConfigError:
    """Returns the error for an unknown experiment name (without `official/`).

    `own` are the names that the user's modules register.
    """
    known = [f"{PREFIX}{experiment}" for experiment in (*experiments(), *own)]
    message, _, _ = unknown_name_message("experiment", f"{PREFIX}{name}", known).partition("\n")
    text = f"{message}\nrun `runner list --official` to list all; use --import MODULE for your own"
    return ConfigError([Problem("--experiment", text, code="unknown-name")])


def task_modules(class_name: str, config_module: str) -> list[str]:
    """Returns the modules that may register the task of a config class, the most likely first.

    They are sorted by the distance from `config_module`, the module that defines the class.
    """
    modules = {r.module for r in registrations() if r.kind == _TASK and r.name == class_name}
    return sorted(modules, key=lambda module: (-_shared_prefix(module, config_module), module))


def part_modules(module: str) -> list[str]:
    """Returns the modules of a module's project that register networks and data loaders."""
    project = project_of(module)
    modules = {r.module for r in registrations() if r.kind in _PARTS}
    return sorted(
        module_name for module_name in modules if project and project_of(module_name) == project
    )


def project_of(module: str) -> str:
    """Returns the project that a module belongs to, or "" if it is not in `official.projects`."""
    parts = module.split(".")
    return ".".join(parts[:3]) if parts[:2] == [PACKAGE, "projects"] else ""


def _shared_prefix(module: str, other: str) -> int:
    pairs = zip(module.split("."), other.split("."), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@functools.cache
def registrations() -> tuple[Registration, ...]:
    """Returns everything that a decorator at the top level of a module registers."""
    spec = importlib.util.find_spec(PACKAGE)
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    return tuple(registration for root in roots for registration in _scan_directory(root))


def _scan_directory(root: Path) -> Iterator[Registration]:
    for path in sorted(root.rglob("*.py")):
        if path.stem.endswith("_test"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if any(f"{kind}(" in text for kind in (_EXPERIMENT, _TASK, *_PARTS)):
            dotted = path.relative_to(root).with_suffix("").parts
            module = ".".join([PACKAGE, *(p for p in dotted if p != "__init__")])
            for match in _DECORATOR.finditer(text):
                # Skips examples in docstrings.
                if text.count('"""', 0, match.start()) % 2 == 0:
                    name = match["text"] or match["names"].rpartition(".")[2]
                    yield Registration(match["kind"], name, module)
