"""Learning rate schedules and warmups, with the field names of Model Garden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from orbit_runner.config.errors import Problem, not_set, wrong_type
from orbit_runner.config.schema.base import Config, GardenOnly, OneOf, config_class, field
from orbit_runner.errors import format_count

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


def with_name(default: str) -> Mapping[str, GardenOnly]:
    """Returns Model Garden's setting for the name of a Keras object."""
    return GardenOnly.settings(name=GardenOnly(default, "names of Keras objects are not used"))


@config_class
class GardenSection(Config):
    """A section from which Model Garden's factories build a Keras object."""

    def as_dict(self) -> JsonObject:
        """Returns the settings, with those that only Model Garden's factories need."""
        return {**{n: s.default for n, s in self.garden_only.items()}, **super().as_dict()}


@config_class
class Schedule(GardenSection):
    """Base class of schedules. Settings in `needs` have no default and must be set."""

    needs: ClassVar[tuple[str, ...]] = ()

    def problems(self) -> Iterator[Problem]:
        """Yields (field, message) for settings in `needs` that are not set."""
        for name in self.needs:
            if getattr(self, name) is None:
                yield not_set(name, "must be set for this schedule")


# The length of a schedule that follows the run.
AUTO = "auto"


def _length(help: str) -> Any:
    return field(None, ge=1, word=AUTO, help=f"{help}; auto: until the end of the run")


def _rate(help: str = "initial learning rate") -> Any:
    return field(None, ge=0.0, help=help)


def _offset() -> Any:
    return field(0, help="number of steps by which the schedule is delayed")


@config_class
class ConstantLr(Schedule):
    """A constant learning rate."""

    garden_only = with_name("Constant")
    learning_rate: float = field(0.1, ge=0.0, help="learning rate")


@config_class
class PiecewiseSchedule(Schedule):
    """A schedule that consists of pieces between boundaries."""

    needs = ("boundaries", "values")
    extra_values: ClassVar[int] = 1
    boundaries: list[int] | None = field(
        None, ge=0, help="steps that separate the pieces, in ascending order"
    )
    values: list[float] | None = field(
        None, ge=0.0, help="learning rate of each piece; step_cosine_with_offset: at each boundary"
    )
    offset: int = _offset()

    def problems(self) -> Iterator[Problem]:
        """Yields (field, message) if boundaries and values do not match."""
        yield from super().problems()
        if self.boundaries is None or self.values is None:
            return
        steps = list(self.boundaries)
        if sorted(set(steps)) != steps:
            yield wrong_type("boundaries", f"got {steps}, expected strictly increasing steps")
        allowed = len(steps) + self.extra_values
        if len(self.values) != allowed:
            got = f"got {format_count(len(self.values), 'value')}, but boundaries has {len(steps)}"
            yield wrong_type("values", f"{got}\nallowed: {format_count(allowed, 'value')}")


@config_class
class StepwiseLr(PiecewiseSchedule):
    """A constant rate per piece. `values[i]` is used up to and including step `boundaries[i]`."""

    garden_only = with_name("PiecewiseConstantDecay")


@config_class
class StepCosineLr(PiecewiseSchedule):
    """A cosine per piece, from each value to the next. `values[i]` is the rate at `boundaries[i]`.

    Model Garden's schedule returns NaN from the last boundary on.
    """

    extra_values = 0
    garden_only = with_name("StepCosineDecayWithOffset")


@config_class
class ExponentialLr(Schedule):
    """The rate is initial · decay_rate ^ (step / decay_steps)."""

    needs = ("initial_learning_rate", "decay_steps", "decay_rate")
    garden_only = with_name("ExponentialDecay")
    initial_learning_rate: float | None = _rate()
    decay_steps: int | str | None = _length(
        "number of steps in which the rate is multiplied by decay_rate once"
    )
    decay_rate: float | None = field(
        None, gt=0.0, help="factor by which the rate is multiplied every decay_steps steps"
    )
    staircase: bool | None = field(
        None, help="decay in discrete jumps, at multiples of decay_steps"
    )
    offset: int = _offset()


@config_class
class PolynomialLr(Schedule):
    """Decays from the initial to the end rate along (1 − step / decay_steps) ^ power."""

    needs = ("initial_learning_rate", "decay_steps")
    garden_only = with_name("PolynomialDecay")
    initial_learning_rate: float | None = _rate()
    decay_steps: int | str | None = _length("number of steps until end_learning_rate is reached")
    end_learning_rate: float = field(0.0001, ge=0.0, help="final learning rate")
    power: float = field(1.0, help="exponent of the polynomial; 1: linear")
    cycle: bool = field(False, help="repeat the decay beyond decay_steps")
    offset: int = _offset()


@config_class
class CosineLr(Schedule):
    """Decays along half a cosine from the initial rate to alpha times the initial rate."""

    needs = ("initial_learning_rate", "decay_steps")
    garden_only = with_name("CosineDecay")
    initial_learning_rate: float | None = _rate()
    decay_steps: int | str | None = _length("number of steps to decay over")
    alpha: float = field(0.0, ge=0.0, help="minimum learning rate as a fraction of the initial one")
    offset: int = _offset()


_POWER_RATE = "base learning rate, multiplied by the power of the step"


@config_class
class DirectPowerLr(Schedule):
    """The rate is initial · step ^ power."""

    needs = ("initial_learning_rate",)
    garden_only = with_name("DirectPowerDecay")
    initial_learning_rate: float | None = _rate(_POWER_RATE)
    power: float = field(-0.5, help="exponent of the step")


@config_class
class PowerAndLinearDecayLr(Schedule):
    """The rate is initial · step ^ power, times a linear decay to zero in the last part."""

    needs = ("initial_learning_rate", "total_decay_steps")
    garden_only = with_name("PowerAndLinearDecay")
    initial_learning_rate: float | None = _rate(_POWER_RATE)
    total_decay_steps: int | str | None = _length("number of steps until the rate is 0")
    power: float = field(-0.5, help="exponent of the step")
    linear_decay_fraction: float = field(
        0.1,
        ge=0.0,
        le=1.0,
        help="fraction of the steps, at the end, in which the rate also decays linearly",
    )
    offset: int = _offset()


@config_class
class PowerDecayWithOffsetLr(Schedule):
    """The rate is initial · (step − offset) ^ power, and constant before the offset."""

    needs = ("initial_learning_rate",)
    garden_only = with_name("PowerDecayWithOffset")
    initial_learning_rate: float | None = _rate(_POWER_RATE)
    power: float = field(-0.5, help="exponent of the step")
    offset: int = _offset()
    pre_offset_learning_rate: float = field(1.0e6, help="learning rate before the offset")


@config_class
class LearningRate(OneOf):
    """The learning rate at each step."""

    constant: ConstantLr = field(factory=ConstantLr, help="constant learning rate")
    stepwise: StepwiseLr = field(factory=StepwiseLr, help="piecewise constant learning rate")
    exponential: ExponentialLr = field(factory=ExponentialLr, help="exponential decay")
    polynomial: PolynomialLr = field(factory=PolynomialLr, help="polynomial decay")
    cosine: CosineLr = field(factory=CosineLr, help="cosine decay")
    power: DirectPowerLr = field(factory=DirectPowerLr, help="decay by a power of the step")
    power_linear: PowerAndLinearDecayLr = field(
        factory=PowerAndLinearDecayLr,
        help="decay by a power of the step, with a linear decay to 0 at the end",
    )
    power_with_offset: PowerDecayWithOffsetLr = field(
        factory=PowerDecayWithOffsetLr, help="decay by a power of the step, after an offset"
    )
    step_cosine_with_offset: StepCosineLr = field(
        factory=StepCosineLr, help="piecewise cosine decay"
    )


@config_class
class LinearWarmup(Schedule):
    """Increases linearly from warmup_learning_rate to the schedule's rate at warmup_steps."""

    needs = ("warmup_steps",)
    garden_only = with_name("linear")
    warmup_learning_rate: float = field(0.0, ge=0.0, help="learning rate at step 0")
    warmup_steps: int | None = field(None, ge=0, help="number of warmup steps; 0: no warmup")


@config_class
class PolynomialWarmup(Schedule):
    """The rate is (step / warmup_steps) ^ power times the schedule's rate at warmup_steps."""

    needs = ("warmup_steps",)
    garden_only = with_name("polynomial")
    power: float = field(1.0, help="exponent of the polynomial; 1: linear")
    warmup_steps: int | None = field(None, ge=0, help="number of warmup steps; 0: no warmup")


@config_class
class Warmup(OneOf):
    """The warmup before the schedule. If no type is set, there is no warmup."""

    linear: LinearWarmup = field(factory=LinearWarmup, help="linear warmup")
    polynomial: PolynomialWarmup = field(factory=PolynomialWarmup, help="polynomial warmup")
