"""Experiments of Model Garden's kinds, registered as a user of it would register them."""

from __future__ import annotations

import dataclasses

from official.core import config_definitions, exp_factory
from official.modeling import hyperparams
from official.utils.testing import mock_task


@dataclasses.dataclass
class SliceRuntime(config_definitions.RuntimeConfig):
    """A runtime section with an additional field."""

    num_slices: int = 1


@dataclasses.dataclass
class ShapedTask(mock_task.MockTaskConfig):
    """A task with a tuple and a list."""

    shape: tuple[int, ...] = (3, 4)
    sizes: list[int] = dataclasses.field(default_factory=lambda: [5, 6])


@exp_factory.register_config_factory("orbit_runner_test_slices")
def slices() -> config_definitions.ExperimentConfig:
    """Returns an experiment with a subclass of the runtime section."""
    return config_definitions.ExperimentConfig(
        task=ShapedTask(), runtime=SliceRuntime(distribution_strategy="off")
    )


@exp_factory.register_config_factory("orbit_runner_test_restricted")
def restricted() -> config_definitions.ExperimentConfig:
    """Returns an experiment with restrictions."""
    return config_definitions.ExperimentConfig(
        task=mock_task.MockTaskConfig(),
        trainer=config_definitions.TrainerConfig(train_steps=10, validation_steps=5),
        restrictions=[
            "trainer.train_steps >= trainer.validation_steps",
            "task.train_data.input_path != None",
        ],
    )


@exp_factory.register_config_factory("orbit_runner_test_plain")
def plain() -> hyperparams.Config:
    """Returns an experiment without declared sections."""
    return hyperparams.Config(
        default_params={
            "runtime": {"tpu": "fake"},
            "task": {"model": {"model_id": "bar", "head": {"units": 3, "bias": True}}},
            "trainer": {"train_steps": 2, "validation_steps": -1},
            "notes": {"author": "nobody"},
        }
    )
