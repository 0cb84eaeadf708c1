"""The root of the config tree, and the settings that all tasks have."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from orbit_runner.config.errors import (
    Problem,
    conflict,
    no_effect,
    not_set,
    out_of_range,
    wrong_type,
)
from orbit_runner.config.schema.base import Config, GardenOnly, Rule, config_class, field
from orbit_runner.config.schema.data import (
    DataConfig,
    resolve_data_config,
    training_field,
    validation_field,
)
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.config.schema.optimizers import Optimization
from orbit_runner.config.schema.plugins import (
    TENSORBOARD,
    TRACKER_NAMES,
    CallbackConfig,
    TrackerConfig,
)
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.task_data import TaskData, task_data
from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.config.schema.weights import NEVER
from orbit_runner.errors import DataError, SettingError, format_count
from orbit_runner.registry import TASKS

Problems = Iterator[Problem]

AXES = ("batch", "height", "width", "channels")
EXCLUDE = "task.train_data.exclude"
_DATA = ("train_data", "validation_data")


@config_class
class TaskConfig(Config):
    """Settings that all tasks have: the fields of Model Garden's `TaskConfig`."""

    _rules: ClassVar[tuple[Rule, ...]] = (
        Rule("train_data.is_training", lambda task: task.train_data.is_training is not True,
             "must be true in train_data; remove it", "not-allowed"),
        Rule("validation_data.is_training",
             lambda task: task.validation_data.is_training is not False,
             "must be false in validation_data; remove it", "not-allowed"),
        Rule("init_ignore", lambda task: task.init_ignore and not task.init_checkpoint,
             "has no effect without init_checkpoint\nset both or neither", "no-effect"),
    )  # fmt: skip
    garden_only = GardenOnly.settings(
        allow_image_summary=GardenOnly(False, "this task does not write images", refused=True),
        differential_privacy_config=GardenOnly(
            None, "only tasks of Model Garden add noise to gradients", refused=True
        ),
    )
    input_rank: ClassVar[int] = 4  # The rank of the tensors that partition dims split.
    name: str | None = field(None, help="name of the task; `runner list` shows all tasks")
    init_checkpoint: str = field(
        "",
        path="checkpoint",
        help="checkpoint or run directory to initialize the weights from",
    )
    init_ignore: list[str] = field(
        (),
        help="layers or variables that init_checkpoint does not initialize: patterns such as "
        "`logits` or `*/bias`",
    )
    model: Config | None = field(None, help="the model to train")
    train_data: DataConfig = training_field(DataConfig, "training data and input pipeline")
    validation_data: DataConfig = validation_field(DataConfig, "validation data and input pipeline")
    train_input_partition_dims: list[int] | None = field(
        None,
        le=65536,
        role="devices",
        help="alternative to runtime.train_input_partition_dims, as in Model Garden",
    )
    eval_input_partition_dims: list[int] | None = field(
        None,
        le=65536,
        role="devices",
        help="alternative to runtime.eval_input_partition_dims, as in Model Garden",
    )

    @property
    def shared_data_settings(self) -> Sequence[str]:
        """Names in `train_data` that say what the validation data are, too: of a part of it."""
        return ()

    @property
    def own_optimizer(self) -> str | None:
        """The setting of the task that names an optimizer; None if the task cannot have one.

        It is "" if it is not set, and the model may have one.
        """
        return None

    @property
    def averages_weights(self) -> bool:
        """Whether the optimizer of the task keeps a moving average of the weights."""
        return False

    @property
    def batch_shapes_vary(self) -> bool:
        """Whether training batches have many different shapes, each of which XLA compiles."""
        return False


@dataclasses.dataclass(frozen=True)
class Split:
    """The parts of a batch, for training or for evaluation."""

    section: str  # `train` or `eval`.
    path: str  # Dotted path of the setting; that in `task` if nothing is set.
    dims: tuple[int, ...] = ()  # Parts along each dimension; () if not set.

    @property
    def parts(self) -> int:
        """The number of devices per replica."""
        return math.prod(self.dims)

    def __str__(self) -> str:
        return f"{list(self.dims)} ({format_count(self.parts, 'part')})"


_RULES = (
    Rule(EXCLUDE,
         # A task of a user may lack settings.
         lambda c: getattr(c.task.train_data, "exclude", "") and not c.data.excludes_examples,
         "is not supported by this task, which does not declare the order of its examples\n"
         "remove it, and leave the examples out of the files"),
)  # fmt: skip


@config_class
class ExperimentConfig(Config):
    """An experiment: its task, training, runtime, callbacks and trackers."""

    _rules = _RULES
    name: str = field(
        "",
        subdirectory=True,
        weights=NEVER,
        help="name of the experiment; by default the name of its file",
    )
    description: str = field("", weights=NEVER, help="one-line description, shown by `runner list`")
    official: str = field("", help="name of the Model Garden experiment that this one is based on")
    imports: list[str] = field(
        (), help="modules to import first, such as those that define custom tasks"
    )
    gin_bindings: list[str] = field((), help="gin bindings for @gin.configurable functions")
    task: TaskConfig = field(
        factory=TaskConfig, help="the task: model, data and loss", variants=TASKS
    )
    trainer: TrainerConfig = field(
        factory=TrainerConfig, help="training, evaluation, checkpoints and export"
    )
    runtime: RuntimeConfig = field(
        factory=RuntimeConfig, help="devices, distribution strategy, cluster and precision"
    )
    callbacks: list[CallbackConfig] = field(
        (), help="callbacks to run at events such as the end of an evaluation"
    )
    trackers: list[TrackerConfig] = field(
        factory=lambda: (TrackerConfig(class_name=TENSORBOARD),),
        weights=NEVER,
        role="output",
        help=f"where to show records besides metrics.jsonl: {', '.join(TRACKER_NAMES)}, or classes",
    )

    def __post_init__(self) -> None:
        """Replaces `enable_xla: auto` by what it stands for, which depends on other sections."""
        if self.runtime.enable_xla == "auto":
            self.__dict__["runtime"] = self.runtime.replace(enable_xla=self._uses_xla_by_default())

    def _uses_xla_by_default(self) -> bool:
        """Returns what `enable_xla: auto` stands for: whether XLA makes the steps faster."""
        runtime = self.runtime
        return (
            runtime.num_gpus != 0
            and runtime.traits.compiles_on_gpus
            and not runtime.run_eagerly
            and not self.task.batch_shapes_vary
        )

    @property
    def is_official(self) -> bool:
        """Whether the task is one of Model Garden's."""
        return False

    @property
    def uses_xla(self) -> bool:
        """Whether XLA compiles a step's forward and backward pass.

        Model Garden's experiments enable XLA for GPUs; its own runner ignores that on a CPU.
        """
        on_cpu_only = self.is_official and not self.runtime.num_gpus
        return bool(self.runtime.enable_xla) and not on_cpu_only

    @property
    def compiles_steps(self) -> bool:
        """Whether XLA compiles the steps, as it always does for TPUs."""
        return self.runtime.traits.uses_tpu or self.uses_xla

    @property
    def for_task(self) -> Any:
        """The config in the form that the task expects: in Model Garden's classes for its tasks."""
        return self

    @property
    def data(self) -> TaskData:
        """What the task reads."""
        return task_data(self.task)

    def preflight(self, mode: str) -> Iterator[Problem]:
        """Yields (dotted path, message) for problems that would stop a run.

        See `TaskData.problems`.

        Args:
            mode: The mode of the run.
        """
        problems = [*self.data.problems()]
        yield from (Problem.of(problem).below("task") for problem in problems)
        if not problems and mode in TRAINING:
            yield from _unknown_example_problems(self)
        for section in ("callbacks", "trackers"):
            for index, item in enumerate(getattr(self, section)):
                for problem in item.preflight():
                    yield problem.below(f"{section}[{index}]")

    def _broken(self) -> Iterator[Rule]:
        """Yields also the rules of the strategy that the experiment breaks."""
        yield from super()._broken()
        yield from (rule for rule in self.runtime.traits.experiment_rules if rule.applies(self))

    def problems(self) -> Iterator[Problem]:
        """Yields (dotted path, message) for contradictions between sections."""
        yield from _optimizer_problems(self)
        yield from _split_problems(self)
        yield from super().problems()

    def inert(self) -> Iterator[Problem]:
        """Yields (dotted path, message) for settings that another section makes ineffective."""
        for section in _DATA:
            data = getattr(self.task, section)
            named = data.tf_data_service_address or self.runtime.tf_data_service
            if data.enable_tf_data_service and not named:
                advice = f"task.{section}.tf_data_service_address, or runtime.tf_data_service"
                message = f"has no effect without an address\nset {advice}"
                yield no_effect(f"task.{section}.enable_tf_data_service", message)

    @property
    def averages_weights(self) -> bool:
        """Whether a moving average of the weights is kept, which evaluations use."""
        own = getattr(self.task, "averages_weights", False)
        return self.trainer.optimizer_config.ema is not None or own

    def declared_splits(self, section: str) -> tuple[Split, Split]:
        """Returns how `runtime` and `task` split the batches of `train` or `eval`."""
        name = f"{section}_input_partition_dims"
        in_runtime = Split(section, f"runtime.{name}", tuple(getattr(self.runtime, name) or ()))
        return in_runtime, Split(section, f"task.{name}", tuple(getattr(self.task, name) or ()))


def _optimizer_problems(config: ExperimentConfig) -> Iterator[Problem]:
    """Yields an optimizer that is missing or set twice, and settings that need one."""
    section = config.trainer.optimizer_config
    path = "trainer.optimizer_config"
    if not isinstance(section, Optimization) or config.trainer.checked_later:
        return  # Model Garden checks its own sections.
    own = getattr(config.task, "own_optimizer", None)  # A task of a user may be any config.
    if own is not None and section.optimizer.type is None:
        for name in ("learning_rate", "warmup"):
            if getattr(section, name).type is not None:
                message = f"has no effect without {path}.optimizer"
                advice = "set the learning rate in the config of task.optimizer"
                yield no_effect(f"{path}.{name}", f"{message}\n{advice}")
        return
    if own:
        yield conflict(own, f"{path}.optimizer is set, too; remove one")
    for name in ("optimizer", "learning_rate"):
        choice = getattr(section, name)
        if choice.type is None:
            allowed = ", ".join(choice.choices())
            yield not_set(f"{path}.{name}.type", f"is not set\nallowed: {allowed}")


def _split_problems(config: ExperimentConfig) -> Problems:
    for section in ("train", "eval"):
        by_runtime, by_task = config.declared_splits(section)
        if by_runtime.dims and by_task.dims and by_runtime.dims != by_task.dims:
            yield conflict(
                by_task.path,
                f"got {list(by_task.dims)}, but {by_runtime.path} is {list(by_runtime.dims)}\n"
                "set only one of them",
            )
        for split in (by_runtime, by_task):
            yield from _dims_problems(split, config.task.input_rank)


def _dims_problems(split: Split, rank: int) -> Problems:
    if split.dims and len(split.dims) != rank:
        axes = f": {', '.join(AXES)}" if rank == len(AXES) else ""
        yield wrong_type(split.path, f"got {list(split.dims)}, expected {rank} numbers{axes}")
    elif split.dims and min(split.dims) < 1:
        message = f"got {list(split.dims)}, allowed: numbers of at least 1"
        yield out_of_range(split.path, message)


def _unknown_example_problems(config: ExperimentConfig) -> Iterator[Problem]:
    """Yields (dotted path, message) for IDs that no example has. Reads the data."""
    task = config.task
    if not getattr(getattr(task, "train_data", None), "exclude", ""):
        return
    try:
        train_data = resolve_data_config(task.train_data, config.runtime)
        config.data.training_examples(train_data, None)
    except DataError as error:
        path = f"task.{config.data.setting_of_error('train_data', error)}"
        yield Problem(path, str(error), code=error.code)
    except SettingError as error:
        yield Problem(error.path, error.reason, code=error.code)
