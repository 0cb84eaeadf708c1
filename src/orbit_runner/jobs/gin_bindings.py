"""Applies the gin statements of a config, or only checks them, for `show --check`."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from orbit_runner import tf_internals
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import first_line

_CREATE_TRAINER = re.compile(r"\s*([\w./]+\.)?create_trainer\.")  # Model Garden's


def bind_gin(resolved: ResolvedConfig) -> None:
    """Applies the gin statements of a config, whose modules must be imported already.

    Raises `ConfigError` if gin rejects a statement.
    """
    if problems := [*_bind(resolved)]:
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
            return [*_bind(resolved)]
        except ConfigError as error:
            return [*error.problems]
        except SystemExit as error:
            message = f"cannot import their modules: {error}"
            return [Problem("gin_bindings", message, code="import-failed")]


def _bind(resolved: ResolvedConfig) -> Iterator[Problem]:
    if not resolved.config.gin_bindings:
        return
    import gin

    for index, text in enumerate(resolved.config.gin_bindings):
        origin = resolved.origin(f"gin_bindings[{index}]")
        if _CREATE_TRAINER.match(text):
            message = (
                "create_trainer is not supported: this runner trains every task\n"
                "move the step of your trainer to `train_step` of the task"
            )
            yield Problem("", message, origin, code="not-supported")
            continue
        try:
            gin.parse_config(text)
        except Exception as error:
            message = f"{first_line(error).rstrip('.')}\nin: {text}"
            yield Problem("", message, origin, code="bad-syntax")
