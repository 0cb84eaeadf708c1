"""An experiment of Model Garden as a config of this runner."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, ClassVar

from official.core import config_definitions

from orbit_runner.config.base import Config, setting
from orbit_runner.config.experiment import ExperimentConfig
from orbit_runner.config.modes import TRAINING
from orbit_runner.config.optimizers import Optimization
from orbit_runner.config.origins import Origin
from orbit_runner.config.problems import ConfigError
from orbit_runner.config.raw import Section, section_of
from orbit_runner.config.runtime import RuntimeConfig
from orbit_runner.config.trainer import TrainerConfig
from orbit_runner.config.typed import Builder
from orbit_runner.official.laying import laid_into
from orbit_runner.official.mirror import (
    extra_fields,
    mirrored,
    mirrored_as,
    nested,
    plain,
    signature,
)
from orbit_runner.official.task import OfficialTask

# Where ours say more by default: "as long as a second takes", "where the task allows it".
_LEFT_TO_US, _OUR_WORDS = ("steps_per_loop", "eval_tf_while_loop"), ("auto", None)

_OPTIMIZERS = "official.modeling.optimization.configs."

_CLASSES: dict[Any, type[OfficialExperiment]] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfficialOptimization(Config):
    """How weights change, where Model Garden has a class of its own for that."""

    ema: ClassVar[Any] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfficialTrainer(TrainerConfig):
    """A trainer section whose optimizer may be of a kind that Model Garden has beside its own.

    Many experiments leave rates and steps to the user, so they are looked at before training only.
    """

    checked_later: ClassVar[tuple[str, ...]] = ("optimizer_config",)

    def _schedule_problems(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.optimizer_config, Optimization):
            yield from super()._schedule_problems()


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfficialExperiment(ExperimentConfig):
    """A config that begins from one of Model Garden.

    Attributes:
        template: The config that it begins from, of Model Garden's class; never changed.
    """

    template: ClassVar[Any] = None
    task: OfficialTask = setting(factory=OfficialTask, help="what is learned")  # type: ignore[assignment]
    trainer: TrainerConfig = setting(factory=OfficialTrainer, help="how")

    @functools.cached_property
    def for_task(self) -> Any:
        """The same as Model Garden's own class has it, locked: what its tasks take."""
        made = laid_into(self.template, self.replace(trainer=self._said_to_model_garden()))
        made.lock()
        return made

    def _said_to_model_garden(self) -> TrainerConfig:
        ours, theirs = self.trainer, self.template.trainer
        words = {name: getattr(theirs, name) for name in _LEFT_TO_US if hasattr(theirs, name)}
        return ours.replace(**{n: w for n, w in words.items() if getattr(ours, n) in _OUR_WORDS})

    def preflight(self, mode: str) -> Iterator[tuple[str, str]]:
        """Yields what is missing for a run, by the rules of Model Garden's experiment too."""
        yield from super().preflight(mode)
        yield from _broken_rules(self.for_task)
        if mode in TRAINING:
            yield from _unfinished(self.trainer.optimizer_config, "trainer.optimizer_config")


def adopted(params: Any, name: str = "") -> OfficialExperiment:
    """Makes a config of this runner of one of Model Garden.

    Args:
        params: An experiment's config, of any of Model Garden's classes.
        name: The name that it is registered under; "" where it is not.

    Returns:
        A config with the same values.

    Raises:
        ConfigError: It has values that cannot be, by the rules of this runner.
    """
    builder = Builder()
    built = builder.build(shaped_like(params, name), said_by(params, name))
    if builder.problems:
        raise ConfigError(builder.problems)
    assert isinstance(built, OfficialExperiment)
    return built


def shaped_like(params: Any, name: str = "") -> OfficialExperiment:
    """Makes a config with the fields of one of Model Garden, and the values of its task.

    Args:
        params: An experiment's config, of any of Model Garden's classes.
        name: The name that it is registered under; "" where it is not.

    Returns:
        A config; what `said_by` returns is to be laid over it.
    """
    return _class_of(params)(
        official=name,
        name=name.replace("/", "_"),
        task=mirrored_as(params.task, bases=(OfficialTask,)),
        **{extra: mirrored(getattr(params, extra)) for extra, *_ in _extra_sections(type(params))},
    )


def said_by(params: Any, name: str = "") -> Section:
    """Returns what an experiment of Model Garden says of `trainer` and `runtime`.

    Args:
        params: Its config, of any of Model Garden's classes.
        name: The name that it is registered under.

    Returns:
        A layer below all others.
    """
    return section_of(_common(params), Origin(f"official/{name}", None, -1))


def _class_of(params: Any) -> type[OfficialExperiment]:
    # One class for all that begin alike, so that equal configs are equal. The types count at any
    # depth: a user's optimizer may have the values of one of Model Garden's.
    key = signature(params)
    if key not in _CLASSES:
        _CLASSES[key] = _made_class(params)
    return _CLASSES[key]


def _made_class(params: Any) -> type[OfficialExperiment]:
    trainer = setting(factory=_trainer_class(params.trainer), help="how")
    made = dataclasses.make_dataclass(
        "OfficialExperiment",
        [("trainer", TrainerConfig, trainer), *_extra_sections(type(params))],
        bases=(OfficialExperiment,), frozen=True, kw_only=True,
        namespace={"template": params},
    )  # fmt: skip
    made.__module__ = __name__
    return made


def _extra_sections(cls: type) -> list[tuple[str, Any, Any]]:
    return extra_fields(cls, ExperimentConfig)


def _trainer_class(trainer: Any) -> type[TrainerConfig]:
    """Returns ours, with what a trainer of Model Garden has beyond it."""
    extras = extra_fields(type(trainer), TrainerConfig)
    if not _has_our_optimizers(trainer):
        own = mirrored_as(trainer.optimizer_config, bases=(OfficialOptimization,))
        extras.append(
            ("optimizer_config", type(own), setting(factory=lambda: own, help="how weights change"))
        )
    if not extras:
        return OfficialTrainer
    made = dataclasses.make_dataclass(
        "OfficialTrainer", extras, bases=(OfficialTrainer,), frozen=True, kw_only=True
    )
    made.__module__ = __name__
    return made


def _has_our_optimizers(trainer: Any) -> bool:
    """Returns whether all sections of the optimizer config are of Model Garden's own classes."""
    if type(trainer.optimizer_config) is not config_definitions.OptimizationConfig:
        return False
    return all(cls.__module__.startswith(_OPTIMIZERS) for cls in nested(trainer.optimizer_config))


def _common(params: Any) -> dict[str, Any]:
    """Returns what is said in `trainer` and `runtime`, in words that ours have too."""
    trainer = plain(params.trainer)
    if _has_our_optimizers(params.trainer):
        trainer["optimizer_config"] = params.trainer.optimizer_config.as_dict()
    else:
        del trainer["optimizer_config"]
    ordinary = config_definitions.TrainerConfig()
    for name in _LEFT_TO_US:
        if trainer.get(name) == getattr(ordinary, name):
            del trainer[name]
    return {"trainer": trainer, "runtime": _known(plain(params.runtime), RuntimeConfig)}


def _known(values: dict[str, Any], cls: type[Config]) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(cls)}
    return {name: value for name, value in values.items() if name in names}


def _broken_rules(params: Any) -> Iterator[tuple[str, str]]:
    """Yields the rules that the experiment was registered with, and that do not hold."""
    for rule in params._restrictions:
        single = copy.copy(params)
        vars(single)["_restrictions"] = [rule]
        try:
            single.validate()
        except (KeyError, ValueError):
            path = rule.split()[0]
            yield path, f"Model Garden's experiment wants {rule.replace('None', 'null')}"


def _unfinished(section: Config, path: str) -> Iterator[tuple[str, str]]:
    builder = Builder()
    builder.check(section, path)
    for problem in builder.problems:
        yield problem.path, problem.message
