"""Loads experiments of Model Garden, and reports failed imports in one line.

The rest of the runner uses `registered_experiment` and `from_model_garden`.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from orbit_runner import tf_internals
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.parsing.builder import Builder
from orbit_runner.config.parsing.tree import Section
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism.patches import install
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.model_garden import catalogue
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.streams import print_message

if TYPE_CHECKING:
    from official.modeling import hyperparams

    from orbit_runner.config.schema.experiment import ExperimentConfig


# Tasks that are not registered. Model Garden's own driver names them in its code.
_UNREGISTERED = {
    "official.recommendation.ranking.configs.config.Task": "official.recommendation.ranking.task"
}


def load_experiment(name: str) -> hyperparams.Config:
    """Returns the unlocked config that Model Garden registers under a name, without `official/`.

    Raises ConfigError if there is no such experiment or its module cannot be imported.
    """
    entry = catalogue.experiments().get(name)
    install("loading", _remember_annotations)
    if entry is not None:
        reason = try_import(entry.module)
        if reason:
            message = f"Model Garden cannot import {entry.module}: {reason}"
            raise ConfigError([Problem("--experiment", message, code="unknown-name")])
        _import_parts(entry.module)
    factories = dict(registered_factories())
    if name not in factories:
        raise catalogue.unknown_experiment(name, factories)
    return factories[name]()


def _remember_annotations() -> None:
    def cached(method: types.MethodType) -> Any:
        return classmethod(functools.cache(method.__func__))  # type: ignore[arg-type]

    # Configs look them up at each assignment, thousands of times before an experiment is built.
    tf_internals.replace_functions({"config_annotations": cached})


def try_import(module: str) -> str:
    """Imports a module and returns the error in one line, or "" if the import succeeds."""
    try:
        with warnings.catch_warnings():
            # Users cannot fix the deprecation warnings of Model Garden's dependencies.
            warnings.simplefilter("ignore")
            _import(module)
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    return ""


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ValueError as error:
        if "mutable default" not in str(error):
            raise
        # Python 3.11 rejects unhashable default values of dataclass fields, such as configs.
        _allow_mutable_defaults()
        importlib.import_module(module)


def _allow_mutable_defaults() -> None:
    from official.modeling.optimization.configs import optimization_config as configs

    for cls in (configs.OptimizerConfig, configs.LrConfig, configs.WarmupConfig):
        if cls.__hash__ is None:
            cls.__hash__ = object.__hash__


def registered_factories() -> Iterator[tuple[str, Callable[[], hyperparams.Config]]]:
    """Yields (name, factory) of the experiments registered so far, including the user's own."""
    yield from _flatten_factories(tf_internals.registered_experiments, "")


def task_class(config: hyperparams.Config) -> Any:
    """Returns the class or function that builds the task for a task config of Model Garden.

    Raises RunnerError if no module registers a task for it or the module cannot be imported.
    """
    from official.core import task_factory

    cls = type(config)
    failures = []
    # A user's task is already imported, or is usually in the same module as its config.
    unregistered = _UNREGISTERED.get(f"{cls.__module__}.{cls.__qualname__}", "")
    modules = catalogue.task_modules(cls.__name__, cls.__module__)
    for module in ("", cls.__module__, *modules, unregistered):
        reason = try_import(module) if module else ""
        if reason:
            failures.append(f"  {module}: {reason}")
            continue
        if config.BUILDER is not None or cls in tf_internals.registered_tasks:
            _import_parts(cls.__module__)
            return config.BUILDER or task_factory.get_task_cls(cls)
        if unregistered and module == unregistered:
            return importlib.import_module(module).RankingTask
    if failures:
        looked = "\n".join(failures)
        extra = "\npip install 'orbit-runner[ranking]'" if "recommenders" in looked else ""
        message = f"Model Garden cannot import the task of {cls.__module__}:\n{looked}{extra}"
        raise RunnerError(message, code="unknown-name")
    raise RunnerError(
        f"no task is registered for {cls.__module__}.{cls.__name__}\n"
        "use --import MODULE if it is your own",
        code="unknown-name",
    )


def _import_parts(module: str) -> None:
    # A failure matters only to an experiment that uses the part, and then names the part.
    for part in catalogue.part_modules(module):
        try_import(part)


def _flatten_factories(
    factories: dict[str, Any], path: str
) -> Iterator[tuple[str, Callable[[], hyperparams.Config]]]:
    for name, value in factories.items():
        if isinstance(value, dict):
            yield from _flatten_factories(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value


def registered_experiment(name: str, user_settings: Section) -> tuple[ExperimentConfig, Section]:
    """Returns the config that Model Garden registers under a name, and its lowest config layer.

    Some of the user's settings must be known before TensorFlow is imported. Raises ConfigError
    if there is no such experiment or it cannot be imported.
    """
    if "official.core.exp_factory" not in sys.modules and name not in catalogue.experiments():
        raise catalogue.unknown_experiment(name)  # No user module has registered it.
    runtime = Builder(lenient=True).build(RuntimeConfig(), _section(user_settings, "runtime"))
    assert isinstance(runtime, RuntimeConfig)
    prepare_environment(runtime)
    # The dependencies of Model Garden, such as tensorflow-recommenders, must use the same Keras.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if "tensorflow" not in sys.modules:
        print_message(f"importing tensorflow for official/{name}")
    with paused_collection_scope():
        from orbit_runner.model_garden.experiment import build_like, explicit_settings

        params = load_experiment(name)
    return build_like(params, name), explicit_settings(params, name)


def from_model_garden(params: hyperparams.Config) -> ExperimentConfig:
    """Returns a config of this runner with the values of a config of Model Garden.

    Its `for_task` has the same values as a config of Model Garden's class. Raises ConfigError if
    this runner does not allow a value.
    """
    from orbit_runner.model_garden import experiment

    return experiment.from_model_garden(params)


def _section(root: Section, name: str) -> Section:
    section = root.children.get(name)
    return section if isinstance(section, Section) else Section(root.origin)
