"""Converts experiments of Model Garden to configs of this runner, and back."""

from __future__ import annotations

import copy
import dataclasses
import functools
import glob
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from official.core import config_definitions
from official.modeling.hyperparams import base_config

from orbit_runner.config.errors import ConfigError, Origin, Problem
from orbit_runner.config.parsing.builder import Builder
from orbit_runner.config.parsing.tree import PythonTuple, Section, section_of
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.schema.base import Config, config_class, field
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.task_data import UndeclaredData
from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.config.walk import nodes
from orbit_runner.data.files import is_local, patterns
from orbit_runner.model_garden.schema import (
    OfficialSection,
    extra_fields,
    mirror,
    mirror_config,
    nested_classes,
    to_plain,
    type_signature,
)
from orbit_runner.tf_internals import restrictions, section_class, unlock

_SECTIONS = ("train_data", "validation_data")


@config_class
class OfficialTask(Config):
    """Base class of the classes that mirror task sections of Model Garden; they add the fields."""

    input_rank: ClassVar[int] = 4
    batch_shapes_vary: ClassVar[bool] = False
    # Defaults for fields that not all of Model Garden's classes have.
    name: ClassVar[Any] = None
    init_checkpoint: ClassVar[str] = ""
    model: ClassVar[Any] = None
    train_data: ClassVar[Any] = OfficialSection()
    validation_data: ClassVar[Any] = OfficialSection()
    differential_privacy_config: ClassVar[Any] = None
    train_input_partition_dims: ClassVar[Any] = None
    eval_input_partition_dims: ClassVar[Any] = None


class OfficialData(UndeclaredData):
    """What a task of Model Garden reads, as far as its config tells."""

    def problems(self) -> Iterator[Problem]:
        """Yields a problem for each local file that the config names and that does not exist."""
        for section in _SECTIONS:
            path = getattr(getattr(self.config, section), "input_path", "")
            for pattern in patterns(path):
                if is_local(pattern) and not glob.glob(pattern):
                    yield Problem(
                        f"{section}.input_path", f"no file matches {pattern}", code="missing-file"
                    )
        yield from _checkpoint_problems(self.config.init_checkpoint)


def _checkpoint_problems(path: object) -> Iterator[Problem]:
    if not isinstance(path, str) or not path or not is_local(path):
        return
    place = Path(path)
    file = place / "checkpoint" if place.is_dir() else Path(f"{path}.index")
    if not file.exists():
        yield Problem(
            "init_checkpoint", f"there is no checkpoint at {path!r}", code="no-checkpoint"
        )


# A setting with a default that Model Garden does not have: `auto`, loops of about a second.
_STEPS_PER_LOOP = "steps_per_loop"

_OPTIMIZERS = "official.modeling.optimization.configs."

_CLASSES: dict[tuple[type, object], type[OfficialExperiment]] = {}


@config_class
class OfficialOptimization(Config):
    """Base class of optimizer sections that use classes other than Model Garden's built-in ones."""

    ema: ClassVar[Any] = None


@config_class
class OfficialTrainer(TrainerConfig):
    """A trainer section whose optimizer may use classes other than Model Garden's built-in ones.

    Many experiments leave learning rates and steps to the user, so these are checked only before
    training.
    """

    checked_later: ClassVar[tuple[str, ...]] = ("optimizer_config",)


@config_class
class PartialRuntime(RuntimeConfig):
    """The runtime section of a plain config without a strategy, which its driver chooses."""

    def problems(self) -> Iterator[Problem]:
        """Yields nothing, because the strategy determines which settings are valid."""
        yield from ()


@config_class
class OfficialExperiment(ExperimentConfig):
    """A config that is based on a config of Model Garden."""

    template: ClassVar[Any] = None  # the config that it is based on; never changed
    task: OfficialTask = field(factory=OfficialTask, help="the task: model, data and loss")  # type: ignore[assignment]
    trainer: TrainerConfig = field(
        factory=OfficialTrainer, help="training, evaluation, checkpoints and export"
    )

    @property
    def is_official(self) -> bool:
        """Whether the task is one of Model Garden's."""
        return True

    def _uses_xla_by_default(self) -> bool:
        """Returns the value of the experiment that Model Garden registers."""
        return bool(self.template.runtime.enable_xla)

    @functools.cached_property
    def for_task(self) -> base_config.Config:
        """The same values as a locked config of Model Garden's class, which its tasks take."""
        config = self.replace(trainer=self._native_trainer())
        # Fields of Model Garden's class are numbers; a run has replaced `auto` before it trains.
        numbers = follow_run(config, self.trainer.train_steps, 0)
        native_params = to_native(self.template, numbers)
        native_params.lock()
        return native_params

    def _native_trainer(self) -> TrainerConfig:
        steps = getattr(self.template.trainer, _STEPS_PER_LOOP, None)
        if steps is None or self.trainer.steps_per_loop != "auto":
            return self.trainer
        return self.trainer.replace(steps_per_loop=steps)

    @property
    def data(self) -> OfficialData:
        """What the task reads."""
        return OfficialData(self.task)

    def preflight(self, mode: str) -> Iterator[Problem]:
        """Yields the problems that prevent a run, including restrictions that do not hold."""
        yield from super().preflight(mode)
        yield from broken_restrictions(self.for_task)
        if mode in TRAINING:
            yield from _required_field_problems(
                self.trainer.optimizer_config, "trainer.optimizer_config"
            )


def from_model_garden(params: base_config.Config, name: str = "") -> OfficialExperiment:
    """Returns a config of this runner with the values of a config of Model Garden.

    `name` is the name that it is registered under, "" if it is not registered. Raises ConfigError
    if this runner does not allow a value.
    """
    builder = Builder()
    built = builder.build(build_like(params, name), explicit_settings(params, name))
    if builder.problems:
        raise ConfigError(builder.problems)
    assert isinstance(built, OfficialExperiment)
    return built


def build_like(params: base_config.Config, name: str = "") -> OfficialExperiment:
    """Returns a config with the fields of a config of Model Garden and the values of its task.

    The values of `trainer` and `runtime` are defaults; apply `explicit_settings` to the result.
    """
    plain_config = is_plain(params)
    extras = {
        extra: mirror(getattr(params, extra), fixed=plain_config)
        for extra, *_ in _extra_sections(params)
    }
    task = mirror_config(_section(params, "task"), bases=(OfficialTask,), fixed=plain_config)
    return _class_of(params)(official=name, name=name.replace("/", "_"), task=task, **extras)


def explicit_settings(params: base_config.Config, name: str = "") -> Section:
    """Returns the values that a config of Model Garden sets in `trainer` and `runtime`.

    They form the lowest config layer.
    """
    return section_of(_common_values(params), Origin(f"official/{name}", None, -1))


def _class_of(params: base_config.Config) -> type[OfficialExperiment]:
    # Configs that are based on the same values share a class, so that equal configs compare equal.
    # Types count at any depth: a user's optimizer class may have the same values as a built-in one.
    key = type_signature(params)
    if key not in _CLASSES:
        _CLASSES[key] = _make_class(params)
    return _CLASSES[key]


def _make_class(params: base_config.Config) -> type[OfficialExperiment]:
    trainer = field(
        factory=_trainer_class(_section(params, "trainer")),
        help="training, evaluation, checkpoints and export",
    )
    runtime = field(
        factory=_runtime_class(_section(params, "runtime")),
        help="devices, distribution strategy, cluster and precision",
    )
    experiment_class = dataclasses.make_dataclass(
        "OfficialExperiment",
        [
            ("trainer", TrainerConfig, trainer),
            ("runtime", RuntimeConfig, runtime),
            *_extra_sections(params),
        ],
        bases=(OfficialExperiment,), frozen=True, kw_only=True,
        namespace={"template": params},
    )  # fmt: skip
    experiment_class.__module__ = __name__
    return experiment_class


def is_plain(params: base_config.Config) -> bool:
    """Returns whether an experiment is a plain `hyperparams.Config`, without declared sections."""
    return not isinstance(params, config_definitions.ExperimentConfig)


def _section(params: base_config.Config, name: str) -> base_config.Config:
    """Returns a section of an experiment, or an empty one if a plain config does not have it."""
    section = getattr(params, name) if name in vars(params) else None
    return base_config.Config() if section is None else section


def _extra_sections(params: base_config.Config) -> list[tuple[str, object, object]]:
    return extra_fields(params, ExperimentConfig)


def _runtime_class(runtime: base_config.Config) -> type[RuntimeConfig]:
    """Returns this runner's class, with the fields that a subclass of Model Garden's class adds."""
    extras = extra_fields(runtime, RuntimeConfig)
    base = RuntimeConfig if "distribution_strategy" in vars(runtime) else PartialRuntime
    if not extras:
        return base
    runtime_class = dataclasses.make_dataclass(
        "OfficialRuntime", extras, bases=(base,), frozen=True, kw_only=True
    )
    runtime_class.__module__ = __name__
    return runtime_class


def _trainer_class(trainer: base_config.Config) -> type[TrainerConfig]:
    """Returns this runner's class, with the fields that only Model Garden's trainer has."""
    extras = extra_fields(trainer, TrainerConfig)
    if not _has_our_optimizers(trainer):
        own = mirror_config(trainer.optimizer_config, bases=(OfficialOptimization,))
        extras.append(
            (
                "optimizer_config",
                type(own),
                field(
                    factory=lambda: own,
                    help="optimizer, learning rate, warmup and moving average of the weights",
                ),
            )
        )
    if not extras:
        return OfficialTrainer
    trainer_class = dataclasses.make_dataclass(
        "OfficialTrainer", extras, bases=(OfficialTrainer,), frozen=True, kw_only=True
    )
    trainer_class.__module__ = __name__
    return trainer_class


def _has_our_optimizers(trainer: base_config.Config) -> bool:
    """Returns whether all sections of the optimizer config use Model Garden's built-in classes."""
    optimizer_config = vars(trainer).get("optimizer_config")
    if optimizer_config is None:
        return True
    if type(optimizer_config) is not config_definitions.OptimizationConfig:
        return False
    return all(cls.__module__.startswith(_OPTIMIZERS) for cls in nested_classes(optimizer_config))


def _common_values(params: base_config.Config) -> dict[str, object]:
    """Returns the values of `trainer` and `runtime` in terms of this runner's classes."""
    section = _section(params, "trainer")
    trainer = to_plain(section)
    optimizer = trainer.pop("optimizer_config", None)
    if optimizer is not None and _has_our_optimizers(section):
        trainer["optimizer_config"] = section.optimizer_config.as_dict()
    defaults = config_definitions.TrainerConfig()
    if trainer.get(_STEPS_PER_LOOP) == defaults.steps_per_loop:
        del trainer[_STEPS_PER_LOOP]
    return {"trainer": trainer, "runtime": to_plain(_section(params, "runtime"))}


def broken_restrictions(params: base_config.Config) -> Iterator[Problem]:
    """Yields (dotted path, message) of each restriction of an experiment that does not hold."""
    for rule, single in restrictions(params):
        try:
            single.validate()
        except (KeyError, ValueError):
            path = rule.split()[0]
            yield Problem(
                path,
                f"Model Garden's experiment requires {rule.replace('None', 'null')}",
                code="conflict",
            )


def _required_field_problems(section: Config, path: str) -> Iterator[Problem]:
    builder = Builder()
    builder.check(section, path)
    yield from builder.problems


def to_native(original: base_config.Config, config: Config) -> base_config.Config:
    """Returns an unlocked copy of a config of Model Garden with the values of `config`.

    Names that only one of the two has are ignored. Equal values are not replaced, so a tuple stays
    a tuple, and an int that is a valid float stays an int.
    """
    native = copy.deepcopy(original)
    unlock(native)
    _copy_values(native, config)
    return native


def _copy_values(target: base_config.Config, config: Config) -> None:
    for node in nodes(config):
        name = node.field.name
        value = node.value
        # Blocks that are not chosen keep the experiment's values; nothing reads them.
        if not node.is_used or name not in vars(target):
            continue
        native = vars(target)[name]
        if isinstance(value, Config) and isinstance(native, base_config.Config):
            unlock(native)
            _copy_values(native, value)
        elif value != mirror(native) or not _has_tuples(native, value):
            vars(target)[name] = _native_value(value, native, type(target), name)


def _has_tuples(native: Any, value: object) -> bool:
    """Returns whether an equal value has a tuple wherever `value` is marked as one."""
    if not isinstance(value, tuple):
        return True
    if isinstance(value, PythonTuple) and not isinstance(native, tuple):
        return False
    return all(_has_tuples(*pair) for pair in zip(native, value, strict=True))


def _native_value(value: object, default: object, owner: type, name: str) -> object:
    """Returns a value as Model Garden has it: with lists and its own classes."""
    if isinstance(value, Config):
        # Sections that both packages define, such as `ema`, do not mirror a class.
        native = (getattr(value, "mirrors", None) or section_class(owner, name))()
        _copy_values(native, value)
        return native
    if isinstance(value, Mapping):
        return base_config.Config(
            {k: _native_value(v, None, owner, name) for k, v in value.items()}
        )
    if isinstance(value, tuple):
        items = [_native_value(item, None, owner, name) for item in value]
        return (
            tuple(items) if isinstance(default, tuple) or isinstance(value, PythonTuple) else items
        )
    return value
