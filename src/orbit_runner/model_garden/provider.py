"""The names by which the rest of the runner takes in experiments of Model Garden."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from orbit_runner.config.parsing.builder import Builder
from orbit_runner.config.parsing.tree import Section
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.model_garden import catalogue
from orbit_runner.utils.garbage_collection import paused_collection_scope

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig


def registered_experiment(name: str, said: Section) -> tuple[ExperimentConfig, Section]:
    """Makes the config of an experiment that Model Garden registers.

    Args:
        name: Its name, without `official/`.
        said: What the user says of it. Some settings have to be known before tensorflow is
            imported.

    Returns:
        A config to lay everything over, and the first layer of that.

    Raises:
        ConfigError: There is none, or it cannot be imported.
    """
    if "official.core.exp_factory" not in sys.modules and name not in catalogue.experiments():
        raise catalogue.unknown_experiment(name)  # No module has registered another one.
    runtime = Builder(lenient=True).build(RuntimeConfig(), _section(said, "runtime"))
    assert isinstance(runtime, RuntimeConfig)
    prepare_environment(runtime)
    # What Model Garden builds on, tensorflow-recommenders for one, has to mean the same Keras.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if "tensorflow" not in sys.modules:
        print(f"importing tensorflow, for official/{name}", file=sys.stderr)
    with paused_collection_scope():
        from orbit_runner.model_garden import loading
        from orbit_runner.model_garden.experiment import build_like, explicit_settings

        params = loading.experiment(name)
    return build_like(params, name), explicit_settings(params, name)


class Experiments:
    """The experiments that Model Garden registers, as `registry.PROVIDERS` offers them."""

    names = staticmethod(catalogue.experiments)
    make = staticmethod(registered_experiment)


def adopt(params: Any) -> ExperimentConfig:
    """Makes a config of this runner of one of Model Garden's.

    Args:
        params: An experiment's config, of any of Model Garden's classes.

    Returns:
        A config with the same values, whose `for_task` has them as Model Garden's own class.

    Raises:
        ConfigError: It has values that cannot be, by the rules of this runner.
    """
    from orbit_runner.model_garden import experiment

    return experiment.adopt(params)


def _section(root: Section, name: str) -> Section:
    found = root.children.get(name)
    return found if isinstance(found, Section) else Section(root.origin)
