"""Loads a task's initial weights, and reports how many, because Model Garden's tasks do not."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, TypeAlias

import tensorflow as tf
import tf_keras

from orbit_runner.errors import RunnerError, SettingError, first_line, format_list
from orbit_runner.storage.staging import local_checkpoint
from orbit_runner.tasks.base import Task
from orbit_runner.tasks.initial_weights import LoadedWeights, load_weights
from orbit_runner.tf_internals import restore_id
from orbit_runner.utils.log import note
from orbit_runner.utils.variables import variable_name

if TYPE_CHECKING:
    from official.core import base_task

    from orbit_runner.tasks.multitask import JointTask

    # A task of Model Garden's class, or several that are trained together.
    AnyTask: TypeAlias = base_task.Task | JointTask


_SETTING = "task.init_checkpoint"


def initialize(
    task: AnyTask, model: tf_keras.Model, *, may_be_empty: bool = False
) -> LoadedWeights | None:
    """Calls the task's `initialize` on a new model, and reports what it loads.

    The model must be built. If `may_be_empty` is True, `task.init_checkpoint` can be a directory
    without a checkpoint if the task accepts that, as many of Model Garden's tasks do. Returns what
    was loaded, or None if nothing was. Raises `SettingError` if there is no checkpoint,
    or if it does not fit or contains none of the model's variables.
    """
    path = str(getattr(task.task_config, "init_checkpoint", None) or "")
    if not path:
        loaded = task.initialize(model)
        if not isinstance(loaded, LoadedWeights):  # A task of Model Garden returns nothing.
            return None
        path = loaded.source
    elif type(task).initialize is Task.initialize:
        loaded = _load_checkpoint(task.task_config, model, path)
    else:
        checkpoint = local_checkpoint(path)
        is_empty = may_be_empty and _is_empty_directory(checkpoint)
        if not is_empty:
            _require_checkpoint(checkpoint)
        loaded = _run_task_initialize(task, model, path, is_empty=is_empty)
        if is_empty and not loaded.variables:
            note(
                f"warning: {_SETTING}: there is no checkpoint in the directory {path!r}; "
                "training starts from scratch"
            )
            return None
    variables = model.variables
    unloaded_names = [
        variable_name(variable) for variable in variables if id(variable) not in loaded.variables
    ]
    if len(unloaded_names) == len(variables):
        raise SettingError(
            _SETTING,
            f"{path} contains none of the model's {len(variables)} variables",
            code="checkpoint-mismatch",
        )
    note(_describe_loaded(path, unloaded_names, len(variables)))
    return loaded


def _load_checkpoint(config: object, model: tf_keras.Model, path: str) -> LoadedWeights:
    try:
        return load_weights(model, path, getattr(config, "init_ignore", ()))
    except (ValueError, tf.errors.OpError) as error:
        reason = f"{path} does not fit the model: {first_line(error)}"
        raise SettingError(_SETTING, reason, code="checkpoint-mismatch") from error


def _run_task_initialize(
    task: AnyTask, model: tf_keras.Model, path: str, *, is_empty: bool
) -> LoadedWeights:
    """Calls the task's own `initialize`, and determines which variables it assigned."""
    before = [(variable, _version_of(variable)) for variable in model.variables]
    try:
        task.initialize(model)
    except RunnerError:
        raise
    except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:
        if is_empty:
            _require_checkpoint(path)
        unloaded_names = [variable_name(v) for v, mark in before if _version_of(v) == mark]
        raise SettingError(
            _SETTING,
            _describe_misfit(path, error, unloaded_names, len(before)),
            code="checkpoint-mismatch",
        ) from error
    return LoadedWeights(path, frozenset(id(v) for v, mark in before if _version_of(v) != mark))


def _is_empty_directory(path: str) -> bool:
    return bool(tf.io.gfile.isdir(path)) and tf.train.latest_checkpoint(path) is None


def _require_checkpoint(path: str) -> None:
    """Raises an error if there is no checkpoint, because some tasks ignore that."""
    exists = tf.io.gfile.exists(f"{path}.index") or tf.io.gfile.exists(path)
    if not exists or _is_empty_directory(path):
        raise SettingError(
            _SETTING,
            f"there is no checkpoint at {path!r}\n"
            "allowed: the path of a checkpoint without its suffix, or a directory that contains a "
            "file `checkpoint`, such as a run directory",
            code="no-checkpoint",
        )


def _version_of(variable: tf.Variable) -> tuple[int, int]:
    """Returns a value that changes when a variable is restored or assigned."""
    # The number also changes if the new value equals the initial value, such as zero.
    value = zlib.crc32(variable.numpy().tobytes())
    return restore_id(variable), value


def _describe_loaded(path: str, unloaded_names: list[str], total: int) -> str:
    text = f"loaded {total - len(unloaded_names)} of the model's {total} variables from {path}"
    if not unloaded_names:
        return text
    return f"{text}; these keep their initial values:\n{format_list(unloaded_names)}"


def _describe_misfit(path: str, error: Exception, unloaded_names: list[str], total: int) -> str:
    reason = f"{path} does not fit the model: {first_line(error)}"
    if not unloaded_names:
        return reason
    summary = f"loaded {total - len(unloaded_names)} of the model's {total} variables; not loaded:"
    return f"{reason}\n{summary}\n{format_list(unloaded_names)}"
