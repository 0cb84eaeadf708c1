"""Checks gin statements without importing anything: missing modules, misspelled sections.

Only the module itself can tell whether a configurable exists. `jobs/gin_bindings.py` checks that.
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import io
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner.config.errors import Origin, Problem
from orbit_runner.config.parsing.gin_files import ROOTS, Delegate, gin_text
from orbit_runner.config.schema.base import Config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.errors import nearest_name_hint

if TYPE_CHECKING:
    from gin.config_parser import BindingStatement

    from orbit_runner.config.parsing.gin_files import Statement

# Packages with modules that have no file of their own.
_LAZY = ("tensorflow", "keras", "tf_keras")


def gin_problems(config: ExperimentConfig, origins: Mapping[str, Origin]) -> Iterator[Problem]:
    """Yields the problems of gin statements that can be found without importing modules.

    `origins` maps each statement to its origin. Only these statements are checked.
    """
    if not origins:
        return
    # Each text holds exactly one statement.
    statements = {text: parse_statements(text)[0] for text in origins}
    modules = [statement.module for statement in statements.values() if _is_import(statement)]
    for text, statement in statements.items():
        message = ""
        code = "unknown-name"
        if _is_import(statement):
            message = _import_problem(statement.module)
            code = "import-failed"
        elif _binds_trainer(statement):
            message = (
                f"{statement.selector}.{statement.arg_name} is not supported: this runner trains "
                "every task\nmove the step of your trainer to `train_step` of the task"
            )
            code = "not-supported"
        elif type(statement).__name__ == "BindingStatement" and not statement.scope:
            message = _section_problem(statement, config, [*modules, *config.imports])
        if message:
            yield Problem("", message, origins[text], code)


def parse_statements(text: str) -> list[Statement]:
    """Returns the statements in gin text, as objects of gin's parser."""
    from gin import config_parser

    return [*config_parser.ConfigParser(io.StringIO(text), Delegate())]


def _is_import(statement: Statement) -> bool:
    return type(statement).__name__ == "ImportStatement"


def _binds_trainer(statement: Statement) -> bool:
    """Returns whether a statement sets an argument of Model Garden's `create_trainer`."""
    selector = getattr(statement, "selector", "")
    return selector.rpartition(".")[2] == "create_trainer"


def _import_problem(module: str) -> str:
    missing, siblings = _missing_module(module)
    if not missing:
        return ""
    near = nearest_name_hint(missing.rpartition(".")[2], siblings)
    return f"cannot import {module!r}: no module named {missing!r}{near}"


def _missing_module(module: str) -> tuple[str, list[str]]:
    """Returns the part of a module's name that does not exist, and the names of its siblings.

    Parents are found without importing them, because that could import TensorFlow.
    """
    parts = module.split(".")
    path = None
    if parts[0] in _LAZY:
        return "", []
    for index in range(len(parts)):
        name = ".".join(parts[: index + 1])
        loaded = sys.modules.get(name)
        if index and path is None:
            return name, []
        if loaded is not None:
            path = getattr(loaded, "__path__", None)
            continue
        spec = _find_spec(name, path)
        if spec is None:
            return name, [sibling.name for sibling in pkgutil.iter_modules(path)] if path else []
        path = spec.submodule_search_locations
    return "", []


def _find_spec(name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
    specs = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


def _section_problem(
    statement: BindingStatement, config: ExperimentConfig, modules: Sequence[str]
) -> str:
    """Returns a message if a binding such as `trainr.train_steps = 5` misspells a section."""
    path = [part for part in f"{statement.selector}.{statement.arg_name}".split(".") if part]
    root = path[0]
    near = nearest_name_hint(root, ROOTS)
    section = near.partition("'")[2].partition("'")[0]
    values: Any = config if section == "experiment" else getattr(config, section, None)
    if not near or len(path) < 2 or not isinstance(values, Config):
        return ""
    if path[1] not in {field.name for field in dataclasses.fields(values)}:
        return ""
    if any(_may_define(module, root) for module in modules):
        return ""  # It may be a configurable of that name with such a parameter.
    written = ".".join([section, *path[1:]])
    return f"unknown section {root!r}{near}\nwrite {written} = {gin_text(statement.value)}"


def _may_define(module: str, name: str) -> bool:
    """Returns whether the source of a module may define a configurable of a name."""
    parts = module.split(".")
    path = None
    origin = ""
    for index in range(len(parts)):
        spec = _find_spec(".".join(parts[: index + 1]), path)
        if spec is None:
            return True  # The content of the module is unknown.
        path = spec.submodule_search_locations
        origin = spec.origin or ""
    try:
        source = Path(origin).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return bool(re.search(rf"\b{re.escape(name)}\b", source)) or "import *" in source
