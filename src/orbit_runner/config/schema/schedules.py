"""Learning rate schedules and warmups, with the field names of Model Garden."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from orbit_runner.config.schema.base import Config, OneOf, field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(Config):
    """Base class of schedules. Settings in `needs` have no default and must be set."""

    needs: ClassVar[tuple[str, ...]] = ()
    name: str = field("", help="name of the schedule's ops")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for settings in `needs` that are not set."""
        for name in self.needs:
            if getattr(self, name) is None:
                yield name, "has to be set for this schedule"


def _rate(help: str = "learning rate at the start") -> Any:
    return field(None, ge=0.0, help=help)


def _offset() -> Any:
    return field(0, help="number of steps by which the schedule is shifted to the right")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantLr(Schedule):
    """A constant learning rate."""

    name: str = field("Constant", help="name of the schedule's ops")
    learning_rate: float = field(0.1, ge=0.0, help="the rate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pieces(Schedule):
    """A schedule that consists of pieces between boundaries."""

    needs = ("boundaries", "values")
    extra_values: ClassVar[int] = 1
    boundaries: list[int] | None = field(None, ge=0, help="steps at which a piece ends, rising")
    values: list[float] | None = field(None, ge=0.0, help="learning rate of each piece")
    offset: int = _offset()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) if boundaries and values do not match."""
        yield from super().problems()
        if self.boundaries is None or self.values is None:
            return
        if sorted(set(self.boundaries)) != list(self.boundaries):
            yield "boundaries", f"got {list(self.boundaries)}, which do not rise strictly"
        if len(self.values) != len(self.boundaries) + self.extra_values:
            yield (
                "values",
                f"got {len(self.values)} values for {len(self.boundaries)} boundaries\n"
                f"allowed: {len(self.boundaries) + self.extra_values} values",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepwiseLr(Pieces):
    """A constant rate per piece. `values[i]` is used up to and including step `boundaries[i]`."""

    name: str = field("PiecewiseConstantDecay", help="name of the schedule's ops")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepCosineLr(Pieces):
    """A cosine per piece, from each value to the next. `values[i]` is the rate at `boundaries[i]`.

    Model Garden's schedule returns NaN from the last boundary on.
    """

    extra_values = 0
    name: str = field("StepCosineDecayWithOffset", help="name of the schedule's ops")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) also if there are fewer than two boundaries."""
        yield from super().problems()
        if self.boundaries is not None and len(self.boundaries) < 2:
            yield "boundaries", f"got {list(self.boundaries)}, allowed: at least two"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialLr(Schedule):
    """The rate is initial · decay_rate ^ (step / decay_steps)."""

    needs = ("initial_learning_rate", "decay_steps", "decay_rate")
    name: str = field("ExponentialDecay", help="name of the schedule's ops")
    initial_learning_rate: float | None = _rate()
    decay_steps: int | None = field(None, ge=1, help="steps for one factor of decay_rate")
    decay_rate: float | None = field(None, gt=0.0, help="factor over decay_steps")
    staircase: bool | None = field(None, help="decay at whole multiples of decay_steps only")
    offset: int = _offset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolynomialLr(Schedule):
    """Decays from the initial to the end rate along (1 − step / decay_steps) ^ power."""

    needs = ("initial_learning_rate", "decay_steps")
    name: str = field("PolynomialDecay", help="name of the schedule's ops")
    initial_learning_rate: float | None = _rate()
    decay_steps: int | None = field(None, ge=1, help="steps to the end rate")
    end_learning_rate: float = field(0.0001, ge=0.0, help="rate from then on")
    power: float = field(1.0, help="power of the polynomial; 1 is a line")
    cycle: bool = field(False, help="start again after decay_steps")
    offset: int = _offset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CosineLr(Schedule):
    """Decays along half a cosine from the initial rate to alpha times the initial rate."""

    needs = ("initial_learning_rate", "decay_steps")
    name: str = field("CosineDecay", help="name of the schedule's ops")
    initial_learning_rate: float | None = _rate()
    decay_steps: int | None = field(None, ge=1, help="steps to the end of the cosine")
    alpha: float = field(0.0, ge=0.0, help="last rate as a fraction of the initial one")
    offset: int = _offset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DirectPowerLr(Schedule):
    """The rate is initial · step ^ power."""

    needs = ("initial_learning_rate",)
    name: str = field("DirectPowerDecay", help="name of the schedule's ops")
    initial_learning_rate: float | None = _rate("factor of the power")
    power: float = field(-0.5, help="power of the step")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PowerAndLinearDecayLr(Schedule):
    """The rate is initial · step ^ power, times a linear decay to zero in the last part."""

    needs = ("initial_learning_rate", "total_decay_steps")
    name: str = field("PowerAndLinearDecay", help="name of the schedule's ops")
    initial_learning_rate: float | None = _rate("factor of the power")
    total_decay_steps: int | None = field(None, ge=1, help="step at which the rate is 0")
    power: float = field(-0.5, help="power of the step")
    linear_decay_fraction: float = field(
        0.1, ge=0.0, le=1.0, help="share of the steps, the last ones, under the line"
    )
    offset: int = _offset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PowerDecayWithOffsetLr(Schedule):
    """The rate is initial · (step − offset) ^ power, and constant before the offset."""

    needs = ("initial_learning_rate",)
    name: str = field("PowerDecayWithOffset", help="name of the schedule's ops")
    initial_learning_rate: float | None = _rate("factor of the power")
    power: float = field(-0.5, help="power of the step")
    offset: int = _offset()
    pre_offset_learning_rate: float = field(1.0e6, help="rate before the offset")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningRate(OneOf):
    """The learning rate at each step."""

    required = True
    constant: ConstantLr = field(factory=ConstantLr, help="one rate")
    stepwise: StepwiseLr = field(factory=StepwiseLr, help="one rate a piece")
    exponential: ExponentialLr = field(factory=ExponentialLr, help="exponential decay")
    polynomial: PolynomialLr = field(factory=PolynomialLr, help="polynomial decay")
    cosine: CosineLr = field(factory=CosineLr, help="half a cosine")
    power: DirectPowerLr = field(factory=DirectPowerLr, help="power of the step")
    power_linear: PowerAndLinearDecayLr = field(
        factory=PowerAndLinearDecayLr, help="power, then a line to zero"
    )
    power_with_offset: PowerDecayWithOffsetLr = field(
        factory=PowerDecayWithOffsetLr, help="power of the step after an offset"
    )
    step_cosine_with_offset: StepCosineLr = field(factory=StepCosineLr, help="one cosine a piece")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearWarmup(Schedule):
    """Increases linearly from warmup_learning_rate to the schedule's rate at warmup_steps."""

    needs = ("warmup_steps",)
    name: str = field("linear", help="name of the warm-up's ops")
    warmup_learning_rate: float = field(0.0, ge=0.0, help="rate at step 0")
    warmup_steps: int | None = field(None, ge=0, help="length of the warm-up; 0: none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolynomialWarmup(Schedule):
    """The rate is (step / warmup_steps) ^ power times the schedule's rate at warmup_steps."""

    needs = ("warmup_steps",)
    name: str = field("polynomial", help="name of the warm-up's ops")
    power: float = field(1.0, help="power of the polynomial")
    warmup_steps: int | None = field(None, ge=0, help="length of the warm-up; 0: none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Warmup(OneOf):
    """The warmup before the schedule. If no type is set, there is no warmup."""

    linear: LinearWarmup = field(factory=LinearWarmup, help="a line")
    polynomial: PolynomialWarmup = field(factory=PolynomialWarmup, help="a power")
