"""Runs a trainer of the user's own in Orbit's controller, as Model Garden's runner does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import orbit
from official.core import actions

from orbit_runner.errors import SettingError


class Listener(Protocol):
    """What is called after each loop and each evaluation: a part of `Observer`."""

    def trained(self, step: int, logs: Mapping[str, float]) -> None:
        """Called after a loop of steps."""

    def evaluated(self, step: int, logs: Mapping[str, float]) -> None:
        """Called after an evaluation."""


class Reports:
    """Reports loops and evaluations of a trainer to the observer of the run.

    Attributes:
        last: The result of the last evaluation; {} before the first.
    """

    def __init__(self, observer: Listener, global_step: Any) -> None:
        """Starts to measure the time of the first loop.

        Args:
            observer: Called after each loop and each evaluation.
            global_step: The step, an int64 scalar variable.
        """
        self._observer, self._global_step = observer, global_step
        self.last: dict[str, Any] = {}
        self.restart()

    def restart(self) -> None:
        """Starts to measure the time of the next loop."""
        self._step, self._time = self._current_step(), time.perf_counter()

    def trained(self, logs: Mapping[str, Any]) -> None:
        """Reports a loop of steps.

        Args:
            logs: What the trainer returned.
        """
        steps, seconds = self._current_step() - self._step, time.perf_counter() - self._time
        speed = {"steps_per_second": steps / seconds if seconds else 0.0}
        self._observer.trained(self._current_step(), {**_scalars(logs), **speed})
        self.restart()

    def evaluated(self, logs: Mapping[str, Any]) -> None:
        """Reports an evaluation.

        Args:
            logs: What the trainer returned.
        """
        self.last = dict(logs)
        self._observer.evaluated(self._current_step(), _scalars(logs))
        self.restart()

    def _current_step(self) -> int:
        return int(self._global_step.numpy())


def _scalars(logs: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in logs.items():
        if isinstance(value, Mapping):
            found.update(_scalars(value, f"{prefix}{name}/"))
        elif not getattr(value, "shape", ()):
            found[f"{prefix}{name}"] = float(orbit.utils.get_value(value))
    return found


def garden_controller(
    runner: Any,
    params: Any,
    trainer: Any,
    evaluator: Any,
    controller_cls: type[orbit.Controller],
    reports: Reports,
    *,
    asynchronous: bool,
    save_summary: bool,
    train_actions: Any,
    eval_actions: Any,
    summary_manager: Any,
    eval_summary_manager: Any,
) -> orbit.Controller:
    """Returns the controller of a trainer of Model Garden's kind.

    Args:
        runner: The `OrbitExperimentRunner`.
        params: The experiment.
        trainer: What trains; None in modes that only evaluate.
        evaluator: What evaluates.
        controller_cls: Its class.
        reports: Reports loops and evaluations.
        asynchronous: Whether checkpoints are saved beside training.
        save_summary: Whether to write summaries.
        train_actions: Called with the output of each loop of training.
        eval_actions: Called with the result of each evaluation.
        summary_manager: Writes summaries of training, in place of Orbit's.
        eval_summary_manager: Writes summaries of evaluation.

    Returns:
        The controller; the newest checkpoint is restored.
    """
    manager, folder = runner.checkpoint_manager, Path(runner.model_dir)
    own_train, own_eval = [reports.trained, *train_actions], [reports.evaluated, *eval_actions]
    if trainer:
        own_train += actions.get_train_actions(
            params, trainer, runner.model_dir, checkpoint_manager=manager
        )
    if evaluator:
        own_eval += actions.get_eval_actions(params, evaluator, runner.model_dir)
    settings = params.trainer
    if trainer and settings.train_steps < 1:
        raise SettingError(
            "trainer.train_steps",
            f"got {settings.train_steps}; a trainer of your own needs a number of steps, and "
            "cannot use trainer.train_epochs",
        )
    return controller_cls(
        strategy=runner.strategy,
        trainer=trainer,
        evaluator=evaluator,
        global_step=runner.trainer.global_step,
        steps_per_loop=_number(settings, "steps_per_loop"),
        checkpoint_manager=manager,
        enable_async_checkpointing=asynchronous,
        summary_dir=str(folder / "train") if save_summary else None,
        eval_summary_dir=(
            str(folder / settings.validation_summary_subdir) if save_summary else None
        ),
        summary_interval=settings.summary_interval if save_summary else None,
        train_actions=own_train,
        eval_actions=own_eval,
        summary_manager=summary_manager,
        eval_summary_manager=eval_summary_manager,
    )


def drive(runner: Any, settings: Any, mode: str, *, evaluates_at_end: bool) -> dict[str, Any]:
    """Trains, evaluates, or both, by the methods of the controller.

    Args:
        runner: The `OrbitExperimentRunner`.
        settings: The experiment's section `trainer`.
        mode: What to do.
        evaluates_at_end: Whether to evaluate once more at the end.

    Returns:
        The result of the evaluation at the end; {} where there was none.
    """
    controller, steps = runner.controller, settings.validation_steps
    if mode == "train_and_eval":
        controller.train_and_evaluate(
            train_steps=settings.train_steps,
            eval_steps=steps,
            eval_interval=settings.validation_interval,
        )
    elif mode == "eval":
        controller.evaluate(steps=steps)
    elif mode == "continuous_eval":
        controller.evaluate_continuously(
            steps=steps,
            timeout=settings.continuous_eval_timeout,
            timeout_fn=lambda: int(runner.trainer.global_step.numpy()) >= settings.train_steps,
        )
    else:
        controller.train(steps=settings.train_steps)
    return controller.evaluate(steps=steps) if evaluates_at_end else {}


def _number(settings: Any, name: str) -> int:
    value = getattr(settings, name)
    if isinstance(value, str):
        raise SettingError(
            f"trainer.{name}", f"got {value!r}; a trainer of your own needs a number of steps"
        )
    return int(value)
