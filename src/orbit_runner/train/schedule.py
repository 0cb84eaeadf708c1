"""Computes how many steps there are, and what happens at which step."""

from __future__ import annotations

import dataclasses
import math

from orbit_runner.config.schema.base import INT_MAX
from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.errors import RunnerError, SettingError


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a run, in global steps."""

    train_steps: int  # the last step
    steps_per_epoch: float  # may be a fraction; 0 if unknown
    summary_interval: int  # the number of steps that a record averages over
    checkpoint_interval: int  # 0: only at the end
    validation_interval: int  # 0: only at the end
    averages_epochs: bool = False  # whether records average since the last evaluation was due

    def is_record(self, step: int) -> bool:
        """Returns whether a record of training ends at a step."""
        return step % self.summary_interval == 0 or step >= self.train_steps

    def should_evaluate(self, step: int) -> bool:
        """Returns whether an evaluation is due at a step."""
        return _is_multiple(step, self.validation_interval) or step >= self.train_steps

    def should_save(self, step: int) -> bool:
        """Returns whether a checkpoint is due at a step."""
        return _is_multiple(step, self.checkpoint_interval) or step >= self.train_steps

    def next_stop(self, step: int, *, evaluates: bool) -> int:
        """Returns the first step after this one at which training pauses to save.

        It pauses for evaluations as well if `evaluates` is true.
        """
        intervals = [self.checkpoint_interval, self.validation_interval if evaluates else 0]
        stops = (_next_multiple(step, interval) for interval in intervals if interval)
        return min((self.train_steps, *stops))

    def is_stop(self, step: int, *, evaluates: bool) -> bool:
        """Returns whether a record ends at a step, or training pauses there."""
        return self.is_record(step) or self.next_stop(step - 1, evaluates=evaluates) == step

    @property
    def epoch_steps(self) -> int:
        """The number of steps from one evaluation to the next."""
        return self.validation_interval or self.train_steps

    def starts_average(self, step: int) -> bool:
        """Returns whether the averages of the next record start after a step."""
        return self.record_start(step + 1) == step or step >= self.train_steps

    def record_start(self, step: int) -> int:
        """Returns the step after which the record that ends at `step` begins."""
        interval = self.epoch_steps if self.averages_epochs else self.summary_interval
        return (step - 1) // interval * interval

    def next_record(self, step: int) -> int:
        """Returns the first step after this one at which a record of training ends."""
        last = max(self.train_steps, step + 1)  # After the last step, each step ends a record.
        return min(last, _next_multiple(step, self.summary_interval))


def check_stop_step(step: int, train_steps: int) -> None:
    """Raises `RunnerError` if a run cannot stop at a step because it does not train it."""
    if not 1 <= step <= train_steps:
        raise RunnerError(
            f"got {step}, allowed: 1 to {train_steps}, the last step of the run\n"
            "omit it to train to the end, or raise trainer.train_steps",
            path="--stop_at_step",
            code="unknown-step",
        )


def _is_multiple(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0


def _next_multiple(step: int, interval: int) -> int:
    return (step // interval + 1) * interval


def make_plan(trainer: TrainerConfig, steps_per_epoch: float) -> Plan:
    """Returns the plan of a run, with epochs converted to steps.

    A batch may contain examples of two epochs, so `e` epochs of `n` examples are ⌈e·n / batch⌉
    steps, and at least e·min_steps_per_epoch. `steps_per_epoch` may be a fraction, and is 0 if
    unknown. Raises SettingError if epochs are set but the size of the dataset is unknown.
    """

    def steps(field: str, instead: str) -> int:
        epochs = getattr(trainer, field)
        if epochs and not steps_per_epoch:
            raise SettingError(
                f"trainer.{field}",
                f"the size of the training dataset is unknown\nset trainer.{instead}",
                code="not-set",
            )
        epoch = max(steps_per_epoch, trainer.min_steps_per_epoch)
        if epochs * epoch > INT_MAX:
            most = INT_MAX / epoch
            raise SettingError(
                f"trainer.{field}",
                f"got {epochs:g}, allowed: at most {most:g}, or {INT_MAX} steps",
                code="out-of-range",
            )
        # Rounding keeps 10.0 epochs from becoming 10.000000000000002 · steps_per_epoch.
        return max(math.ceil(round(epochs * epoch, 6)), int(epochs > 0))

    train_steps = trainer.train_steps or steps("train_epochs", "train_steps")
    return Plan(
        train_steps=train_steps,
        steps_per_epoch=steps_per_epoch,
        summary_interval=trainer.summary_steps(train_steps),
        checkpoint_interval=trainer.checkpoint_steps(train_steps),
        validation_interval=steps("validation_epochs", "validation_interval")
        or trainer.validation_interval,
    )
