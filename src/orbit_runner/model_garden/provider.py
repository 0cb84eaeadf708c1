"""The interface through which the rest of the runner uses experiments of Model Garden."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from orbit_runner.config.parsing.builder import Builder
from orbit_runner.config.parsing.tree import Section
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.model_garden import catalogue
from orbit_runner.utils.garbage_collection import paused_collection_scope

if TYPE_CHECKING:
    from official.modeling import hyperparams

    from orbit_runner.config.schema.experiment import ExperimentConfig


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
        print(f"importing tensorflow for official/{name}", file=sys.stderr)
    with paused_collection_scope():
        from orbit_runner.model_garden import loading
        from orbit_runner.model_garden.experiment import build_like, explicit_settings

        params = loading.load_experiment(name)
    return build_like(params, name), explicit_settings(params, name)


class Experiments:
    """The experiments that Model Garden registers, as a provider for `registry.PROVIDERS`."""

    names = staticmethod(catalogue.experiments)
    make = staticmethod(registered_experiment)


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
