"""The whole tree, and the part of it that every task has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from orbit_runner.config.schema.base import Config, field
from orbit_runner.config.schema.batch_checks import parameter_server_problems, unserved_sections
from orbit_runner.config.schema.callbacks import CallbackConfig
from orbit_runner.config.schema.data import DataConfig
from orbit_runner.config.schema.partitioning import setting_problems
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.registry import TASKS


def training_data() -> DataConfig:
    """Returns the defaults of `train_data`."""
    return DataConfig(is_training=True)


def validation_data() -> DataConfig:
    """Returns the defaults of `validation_data`, which counts every example."""
    return DataConfig(is_training=False, drop_remainder=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DifferentialPrivacy(Config):
    """Noise on clipped gradients."""

    clipping_norm: float = field(1e8, gt=0.0, help="largest norm of each gradient")
    noise_multiplier: float = field(0.0, ge=0.0, help="noise as a multiple of that norm")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """What every task has; fields of Model Garden's `TaskConfig`."""

    input_rank: ClassVar[int] = 4  # Of what partition dims split: images in batches.
    name: str | None = field(None, help="the task: a name that `runner list` shows")
    init_checkpoint: str = field("", help="checkpoint, or folder of one, that weights start from")
    model: Config | None = field(None, help="the network")
    train_data: DataConfig = field(factory=training_data, help="what is trained on")
    validation_data: DataConfig = field(factory=validation_data, help="what is evaluated on")
    differential_privacy_config: DifferentialPrivacy | None = field(
        None, help="noise on gradients, for optimizers of Keras' older kind"
    )
    allow_image_summary: bool = field(
        False, help="pictures in TensorBoard", unsupported="this task draws no pictures"
    )
    train_input_partition_dims: list[int] | None = field(
        None, le=65536, help="the same as in `runtime`; where Model Garden has it"
    )
    eval_input_partition_dims: list[int] | None = field(
        None, le=65536, help="the same as in `runtime`; where Model Garden has it"
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields a section that is fed as the other one: endless, or without its weights."""
        for section, expected in (("train_data", True), ("validation_data", False)):
            if getattr(self, section).is_training is not expected:
                yield (
                    f"{section}.is_training",
                    f"expected {str(expected).lower()}, as the section's name says; leave it out",
                )

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for what is wrong with files and folders.

        Called once the config is resolved and before tensorflow is imported, so that a missing
        file is told at once.
        """
        yield from ()

    def data_files(self) -> Mapping[str, Sequence[Any]] | None:
        """Returns the files that are read, so that a change between two starts is noticed.

        Called after `preflight`, before tensorflow is imported.

        Returns:
            `DataFile` rows of `orbit_runner.data.fingerprint` by section; None to compare names,
            sizes and times of the files that `input_path` and settings ending in `file` or `path`
            name.
        """
        return None

    @property
    def compares_data(self) -> bool:
        """Whether `data_files` returns what a run needs to know its data in another directory."""
        return type(self).data_files is not TaskConfig.data_files

    def image_shape(self, section: str) -> tuple[int, int, int] | None:
        """Returns height, width and channels of a section's images.

        Asked before tensorflow is imported, where batches of images are to be split.

        Args:
            section: `train_data` or `validation_data`.

        Returns:
            The shape; None where only the data set itself will tell.
        """
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig(Config):
    """An experiment: what is learned, how, and where."""

    name: str = field(
        "", subdirectory=True, help="name of the experiment; its file's name where unset"
    )
    description: str = field("", help="one line for `runner list`")
    official: str = field("", help="the experiment of Model Garden that this one begins from")
    imports: list[str] = field((), help="modules to import first: tasks of one's own")
    gin_bindings: list[str] = field((), help="gin statements for @gin.configurable functions")
    task: TaskConfig = field(factory=TaskConfig, help="what is learned", variants=TASKS)
    trainer: TrainerConfig = field(factory=TrainerConfig, help="how")
    runtime: RuntimeConfig = field(factory=RuntimeConfig, help="where")
    callbacks: list[CallbackConfig] = field((), help="classes that are called at events of the run")

    @property
    def is_official(self) -> bool:
        """Whether the task is one of Model Garden's."""
        return False

    @property
    def for_task(self) -> Any:
        """The same as the task takes it: those of Model Garden take its own classes."""
        return self

    def preflight(self, mode: str) -> Iterator[tuple[str, str]]:
        """Yields (dotted path, message) for what would stop a run: see `TaskConfig.preflight`.

        Args:
            mode: What the run is to do.
        """
        for name, message in self.task.preflight():
            yield f"task.{name}", message
        for index, callback in enumerate(self.callbacks):
            for name, message in callback.preflight():
                yield f"callbacks[{index}].{name}", message

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields settings of different sections that contradict each other."""
        yield from setting_problems(self)
        yield from parameter_server_problems(self)

    def inert(self) -> Iterator[tuple[str, str]]:
        """Yields settings of different sections that do nothing together."""
        yield from unserved_sections(self)
