"""Callbacks of Keras in a run: called as in `fit`, or replaced by what a run does itself.

Does not import Keras, which made the callbacks.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.run_directory.metric_records import is_result
from orbit_runner.run_directory.run_reader import NON_METRICS
from orbit_runner.train.callbacks.base import Callback, Logs, RunView
from orbit_runner.train.callbacks.keras_kinds import (
    INSTEAD,
    KerasCallback,
    has_settable_rate,
    parts_of,
    read_rate,
)
from orbit_runner.train.callbacks.object_state import ArrayFiles, ObjectState
from orbit_runner.utils.log import note
from orbit_runner.utils.metrics import scalars

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.object_state import Arrays
    from orbit_runner.utils.types import JsonObject

_UNNAMED = "which config.yaml does not name"


def sort_callbacks(callbacks: Any, *, evaluates: bool) -> tuple[list[Callback], dict[str, Any]]:
    """Returns the callbacks of a run, and the settings that do the same as some of them, by path.

    Args:
        callbacks: Callbacks of this package and of Keras, in a list or alone.
        evaluates: Whether the run evaluates.

    Raises:
        ConfigError: The run cannot call some callbacks; it lists all of them.
    """
    if not isinstance(callbacks, (list, tuple)):
        callbacks = [] if callbacks is None else [callbacks]
    own: list[Callback] = []
    of_keras: list[KerasCallback] = []
    settings: dict[str, Any] = {}
    problems: list[Problem] = []
    for index, callback in enumerate(callbacks):
        place = f"callbacks[{index}]"
        if isinstance(callback, Callback):
            name = type(callback).__name__
            callback.inexact_reason = f"{place}: {name} was passed as an object, {_UNNAMED}"
            own.append(callback)
            continue
        item = KerasCallback(callback, place)
        of_keras.append(item)
        item_problems = [*item.problems(evaluates=evaluates)]
        problems += item_problems
        setting = None if item_problems else item.equal_setting()
        # Another callback may add the value that this one monitors.
        is_certain = not (settings or any(other.may_add_values for other in of_keras))
        if setting is not None and (setting == {} or is_certain):
            settings |= setting
            item.is_exact = True
    if problems:
        raise ConfigError(problems)
    return [*own, *([KerasCallbacks(of_keras)] if of_keras else [])], settings


class KerasCallbacks(Callback):
    """Calls callbacks of Keras as `fit` does.

    An epoch ends with its evaluation, or without validation data, where one would be due. The logs
    have the names of Keras: `val_loss`, `val_accuracy`, and `loss` and `accuracy` for the averages
    of the training since the begin of the epoch.
    """

    def __init__(self, callbacks: Sequence[KerasCallback]) -> None:
        self._callbacks = callbacks
        self._called = [item for item in callbacks if item.is_called]
        self.averages_epochs = bool(self._called)
        # By the class and a number, which tells those of one class apart.
        self._states: dict[str, ObjectState] = {}
        numbers = Counter[str]()
        for item in self._called:
            numbers[item.name] += 1
            state = ObjectState(item.callback, item.skipped_attributes())
            self._states[f"{item.name}#{numbers[item.name]}"] = state
        self.inexact_reason = self._inexact_reason()
        self._epoch = 0
        self._is_within_epoch = False
        self._has_ended = False
        self._stopped_by = ""  # the callback that has set `model.stop_training`
        self._logs: dict[str, float] = {}  # of the training, since the begin of the epoch
        self._last: dict[str, float] = {}  # of the last epoch
        self._optimizers: list[Any] = []  # those whose learning rate can be set
        self._rates: list[float] = []  # their learning rates at the begin
        self._restored: JsonObject = {}
        self._run: RunView | None = None
        self._files: ArrayFiles | None = None

    def _inexact_reason(self) -> str:
        """Returns why the config does not reproduce the run; "" if it does."""
        states = zip(self._called, self._states.values(), strict=True)
        inexact = [(item, state) for item, state in states if not item.is_exact]
        if not inexact:
            return ""
        names = ", ".join(f"{item.place}: {item.name}" for item, _ in inexact)
        verb = "was passed as an object" if len(inexact) == 1 else "were passed as objects"
        unstored = [f"{item.place}.{name}" for item, state in inexact for name in state.unstored()]
        more = f", and checkpoints do not contain {', '.join(unstored)}" if unstored else ""
        return f"{names} {verb}, {_UNNAMED}{more}"

    @property
    def _model(self) -> Any:
        assert self._run is not None
        return getattr(self._run.model, "keras_3_model", self._run.model)

    def on_run_begin(self, run: RunView) -> None:
        """Says which callbacks are not called."""
        for item in self._callbacks if run.is_chief else ():
            if not item.is_called:
                note(f"note: {item.place}: {item.name} is not called: {INSTEAD[item.name]}")

    def on_train_begin(self, run: RunView) -> None:
        """Passes the model, restores the state, and begins an epoch unless one has begun."""
        self._run = run
        self._files = ArrayFiles(run.model_dir)
        optimizer = getattr(self._model, "optimizer", None)
        if optimizer is None:
            optimizer = getattr(run.state.optimizer, "keras_3_optimizer", run.state.optimizer)
            object.__setattr__(self._model, "optimizer", optimizer)  # Not tracked by the model.
        self._check(run, optimizer)
        self._optimizers = [*filter(has_settable_rate, parts_of(optimizer))]
        self._rates = [*map(read_rate, self._optimizers)]
        self._model.stop_training = False
        if not self._called:
            return
        steps = run.plan.epoch_steps
        for item in self._called:
            epochs = math.ceil(run.train_steps / steps)
            item.callback.set_params({"epochs": epochs, "steps": steps, "verbose": 0})
            item.callback.set_model(self._model)
        self._has_ended = _has_ended(run)
        if not self._has_ended:
            self._call_all("on_train_begin", {})
        self.inexact_reason = self._inexact_reason()
        self._epoch = run.step // steps
        self._restore(run)
        if not (self._is_within_epoch or self._has_ended):
            self._begin_epoch()

    def _check(self, run: RunView, optimizer: Any) -> None:
        """Raises `ConfigError` if callbacks do not suit the optimizer or the metrics."""
        evaluator = run.evaluator
        known: list[str] = []
        if evaluator is not None and not evaluator.gathers:
            known = [f"val_{name.removeprefix('validation_')}" for name in evaluator.metric_names]
        problems: list[Problem] = []
        for item in self._called:
            problems += item.conflicts(optimizer)
            if known and item.monitor.startswith("val_") and item.monitor not in known:
                problems.append(item.unknown_monitor(known))
            known = [] if item.may_add_values else known
        if problems:
            raise ConfigError(problems)

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Stores the averages of the epoch, which ends here if nothing is evaluated."""
        self._logs = {
            name.removeprefix("training_"): value
            for name, value in scalars(logs).items()
            if name not in NON_METRICS and is_result(name) and not name.endswith("learning_rate")
        }
        if self._called and run.evaluator is None and run.plan.should_evaluate(run.step):
            self._end_epoch(run, {})
            self._pause(run)

    def on_evaluate_begin(self, run: RunView) -> None:
        """Begins a test, unless the training has ended."""
        if not self._has_ended:
            self._call_all("on_test_begin", {})

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Ends a test and an epoch, unless the training has ended."""
        if self._called and not self._has_ended:
            results = {
                name.removeprefix("validation_"): value
                for name, value in scalars(logs).items()
                if name not in NON_METRICS
            }
            self._call_all("on_test_end", dict(results))
            self._end_epoch(run, {f"val_{name}": value for name, value in results.items()})

    def on_last_step(self, run: RunView) -> bool:
        """Ends the training; returns whether a callback has changed the weights."""
        from orbit_runner.checkpoint.fingerprint import weights_fingerprint

        if not self._called:
            return False
        if self._is_within_epoch:
            self._end_epoch(run, {})
        before = weights_fingerprint(run.model)
        self._call_all("on_train_end", dict(self._last))
        self.inexact_reason = self._inexact_reason()  # Callbacks may have more attributes now.
        self._has_ended = True
        is_changed = bool(weights_fingerprint(run.model) != before)
        if is_changed and run.state.ema is not None:
            run.state.ema.reset()  # The run ends with its averages.
        return is_changed

    def get_state(self) -> JsonObject | None:
        """Returns the state of each callback, and where the training is."""
        if not self._called:
            return None
        if self._run is None or self._files is None:
            return self._restored
        arrays: Arrays = {}
        states = {key: state.read(arrays) for key, state in self._states.items()}
        rates = [*map(read_rate, self._optimizers)]
        stops = self._model.stop_training and not self._has_ended
        is_partial = self._is_within_epoch and not self._run.plan.starts_average(self._run.step)
        return {
            "epoch": self._epoch,
            "is_within_epoch": self._is_within_epoch,
            "stopped_by": self._stopped_by if stops else "",
            "states": {key: state for key, state in states.items() if state},
            "learning_rates": rates if rates != self._rates else [],
            "metrics": self._run.trainer.metric_values() if is_partial else [],
            "arrays": self._files.write(arrays),
        }

    def set_state(self, state: JsonObject) -> None:
        """Restores the state: now if the run returns to a checkpoint, else before it trains."""
        self._restored = state
        if self._run is not None:
            self._has_ended = False
            self._restore(self._run)

    def _restore(self, run: RunView) -> None:
        self._pause(run)
        state = self._restored
        if not state or self._files is None:
            return
        arrays = self._files.read(state["arrays"])
        for key, own in self._states.items():
            own.write(state["states"].get(key, {}), arrays)
        self._epoch = state["epoch"]
        self._is_within_epoch = state["is_within_epoch"]
        self._stopped_by = state["stopped_by"]
        self._model.stop_training = bool(self._stopped_by)
        rates = state["learning_rates"] or self._rates
        for optimizer, rate in zip(self._optimizers, rates, strict=False):
            if rate != read_rate(optimizer):
                optimizer.learning_rate = rate
        if state["metrics"]:
            with contextlib.suppress(ValueError):  # The metrics are others, after an override.
                run.trainer.restore_metrics(state["metrics"])

    def _begin_epoch(self) -> None:
        self._is_within_epoch = True
        self._call_all("on_epoch_begin", self._epoch, {})

    def _end_epoch(self, run: RunView, results: Mapping[str, float]) -> None:
        values = self._last = {**self._logs, **results}
        ema = run.state.ema
        # With averages of the weights, these were evaluated.
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            for item in self._called:
                if item.monitor and item.monitor not in values:
                    raise ConfigError([item.unknown_monitor(values)])
                self._call(item, "on_epoch_end", self._epoch, values)
        self._epoch += 1
        self._is_within_epoch = False
        if self._model.stop_training:
            run.stop(f"{self._stopped_by} set stop_training")
        if not _has_ended(run):
            self._begin_epoch()

    def _call_all(self, method: str, *arguments: Any) -> None:
        for item in self._called:
            self._call(item, method, *arguments)

    def _call(self, item: KerasCallback, method: str, *arguments: Any) -> None:
        getattr(item.callback, method)(*arguments)
        if self._model.stop_training and not self._stopped_by:
            self._stopped_by = item.name

    def _pause(self, run: RunView) -> None:
        """Makes a loop end with the epoch. Otherwise, its evaluation does so."""
        if run.evaluator is None:
            steps = run.plan.epoch_steps
            run.stops.pause_at((run.step // steps + 1) * steps)


def _has_ended(run: RunView) -> bool:
    return run.step >= run.train_steps or bool(run.stops.reason)
