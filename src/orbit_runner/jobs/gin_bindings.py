"""Applies the gin statements of a config, or only checks them, for `validate`."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from orbit_runner import tf_internals
from orbit_runner.config.errors import ConfigError, Origin, Problem
from orbit_runner.config.parsing.gin_files import macro_names, parse_statements
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import first_line, nearest_name_hint

Statement = tuple[str, Origin | None]


def bind_gin(resolved: ResolvedConfig) -> None:
    """Applies the gin statements of a config, whose modules must be imported already.

    Raises `ConfigError` if gin rejects a statement.
    """
    problems = [*_bind(_statements(resolved))]
    if problems:
        raise ConfigError(problems)


@contextlib.contextmanager
def restored_gin_scope(resolved: ResolvedConfig) -> Iterator[None]:
    """Restores gin's bindings after a `with` block, if the config has any."""
    if not resolved.config.gin_bindings:
        yield
        return
    tables: tuple[Any, ...] = (tf_internals.gin_bindings, tf_internals.gin_operative_bindings)
    before = [{key: dict(values) for key, values in table.items()} for table in tables]
    try:
        yield
    finally:
        for table, values in zip(tables, before, strict=True):
            table.clear()
            table.update(values)


def check_bindings(resolved: ResolvedConfig) -> list[Problem]:
    """Returns the problems that a run would have with the gin statements of a config.

    Imports what a run has imported when it applies them, and TensorFlow with it. What these modules
    register stays registered for the configs that the same process checks later.
    """
    prepare_environment(RuntimeConfig())
    # Modules may print on import.
    with restored_gin_scope(resolved), contextlib.redirect_stdout(sys.stderr):
        try:
            if resolved.config.official:
                loading = importlib.import_module("orbit_runner.model_garden.loading")
                loading.experiment(resolved.config.official)
            importlib.import_module("orbit_runner.train_lib")
            return [*_bind(_statements(resolved))]
        except ConfigError as error:
            return [*error.problems]
        except SystemExit as error:
            message = f"cannot import their modules: {error}"
            return [Problem("gin_bindings", message, code="import-failed")]


def _statements(resolved: ResolvedConfig) -> list[Statement]:
    return [
        (text, resolved.origin(f"gin_bindings[{index}]") or resolved.origin("gin_bindings"))
        for index, text in enumerate(resolved.config.gin_bindings)
    ]


def _bind(statements: Sequence[Statement]) -> Iterator[Problem]:
    if not statements:
        return
    import gin

    parsed = []
    for text, origin in statements:
        try:
            gin.parse_config(text)
            parsed += [(statement, origin) for statement in parse_statements(text)]
        except Exception as error:
            message = first_line(error).rstrip(".")
            yield Problem(
                "",
                f"{message}{_nearest_hint(text, message)}\nin: {text}",
                origin,
                code="bad-syntax",
            )
    defined = {
        statement.scope for statement, _ in parsed if getattr(statement, "selector", "") == "macro"
    }
    for statement, origin in parsed:
        selector = getattr(statement, "selector", "")
        if selector.rpartition(".")[2] == "create_trainer":  # Model Garden's, which nothing calls.
            message = (
                f"{selector} is not supported: this runner trains every task\n"
                "move the step of your trainer to `train_step` of the task"
            )
            yield Problem("", message, origin, code="not-supported")
        for name in macro_names(getattr(statement, "value", None)):
            if not _is_defined(name, defined):
                message = f"macro %{name} is not defined{nearest_name_hint(name, defined)}"
                yield Problem("", message, origin, code="bad-syntax")


def _is_defined(name: str, macros: set[str]) -> bool:
    import gin

    if name in macros or tf_internals.gin_constants.matching_selectors(name):
        return True
    try:
        gin.query_parameter(f"{name}/macro.value")
    except ValueError:
        return False
    return True


def _nearest_hint(text: str, message: str) -> str:
    """Returns a hint with the configurable or parameter of the most similar name, or ""."""
    registry = tf_internals.gin_registry
    known = {full.rpartition(".")[2]: full for full, _ in registry.items()}
    if reference := re.search(r"No configurable matching (?:reference )?'@?([\w./]+)", message):
        return nearest_name_hint(reference[1].rpartition(".")[2].rpartition("/")[2], known)
    if not (parameter := re.search(r"'(\S+)' doesn't have a parameter named '(\w+)'", message)):
        return ""
    matches = registry.matching_selectors(parameter[1])
    if len(matches) != 1:
        return ""
    return nearest_name_hint(
        parameter[2], inspect.signature(registry[matches[0]].wrapped).parameters
    )
