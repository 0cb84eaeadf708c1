"""The settings of the task. A YAML file or a flag can change each of them.

It does not import TensorFlow, so that a mistake in a setting is reported at once.
"""

import dataclasses

from orbit_runner import TaskConfig, field, register_task


# Frozen, because a config must not change during a run.
@dataclasses.dataclass(frozen=True, kw_only=True)
class MyProjectConfig(TaskConfig):
    """Settings of the task, in addition to those that all tasks have."""

    train_file: str = field("data/train.csv", help="CSV file to train on")
    validation_file: str = field("data/validation.csv", help="CSV file to evaluate on")
    hidden_units: int = field(16, ge=1, le=4096, help="width of the hidden layer")


# The classes are strings, so that each is imported only if it is needed.
register_task(
    "my_project",
    config=MyProjectConfig,
    data="my_project.data:MyProjectData",
    task="my_project.task:MyProjectTask",
    help="species of flowers, from a CSV file",
)
