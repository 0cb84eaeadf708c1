"""The settings of the task. A YAML file or a flag can change each of them.

It does not import TensorFlow, so that a mistake in a setting is reported at once.
"""

import dataclasses

from orbit_runner import DataError, TaskConfig, describe_files, field, register_task

from .data import read_rows, sha256

_FILES = ("train_file", "validation_file")


# Frozen, because a config must not change during a run.
@dataclasses.dataclass(frozen=True, kw_only=True)
class MyProjectConfig(TaskConfig):
    """Settings of the task, in addition to those that all tasks have."""

    train_file: str = field("data/train.csv", help="CSV file to train on")
    validation_file: str = field("data/validation.csv", help="CSV file to evaluate on")
    hidden_units: int = field(16, ge=1, le=4096, help="width of the hidden layer")

    def preflight(self):
        """Yields (setting, message) for files that cannot be read.

        The runner calls it before training, and shows which line set the setting.
        """
        for name in _FILES:
            try:
                read_rows(getattr(self, name))
            except DataError as error:
                yield name, str(error)

    def data_files(self):
        """Returns the files that the task reads, with their digests.

        A run records them. If their contents change, it does not resume, because its
        weights would no longer be those of one dataset.
        """
        return {name: describe_files([getattr(self, name)], sha256) for name in _FILES}


# The task is a string, so that TensorFlow is imported only if it is needed.
register_task(
    "my_project",
    config=MyProjectConfig,
    task="my_project.task:MyProjectTask",
    help="species of flowers, from a CSV file",
)
