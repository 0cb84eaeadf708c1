"""Callbacks of Keras in a run: called as in `fit`, or replaced by what a run does itself.

Does not import Keras, which made the callbacks.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.config.errors import ConfigError, Origin, Problem
from orbit_runner.errors import unknown_name_message
from orbit_runner.run_directory.metric_records import is_result
from orbit_runner.run_directory.run_reader import NON_METRICS
from orbit_runner.train.callbacks.base import Callback, Logs, RunView
from orbit_runner.train.callbacks.object_state import ArrayFiles, ObjectState
from orbit_runner.utils.log import note
from orbit_runner.utils.metrics import scalars

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.object_state import Arrays
    from orbit_runner.utils.types import JsonObject

_UNNAMED = "which config.yaml does not name"
_PACKAGES = ("tf_keras", "keras")
_ORIGIN = Origin("run(callbacks=…)")
_IN_GRAPH = (
    "steps run in a graph, in which nothing can be called; use on_log of orbit_runner.Callback, "
    "which is called every trainer.summary_interval steps"
)
# Methods that a run cannot call. Keras calls those that are not listed here and not called below
# only in `predict`.
_BATCH_METHODS = tuple(
    f"on_{kind}batch_{end}" for kind in ("", "train_", "test_") for end in ("begin", "end")
)
_CHECKPOINTS = (
    "the run saves checkpoints (trainer.checkpoint_interval); for the best one, set "
    "trainer.best_checkpoint_export_subdir and trainer.best_checkpoint_eval_metric"
)
# What a run does in place of classes of Keras, which it does not call.
_INSTEAD = {
    "ModelCheckpoint": _CHECKPOINTS,
    "OrbaxCheckpoint": _CHECKPOINTS,
    "BackupAndRestore": "the run resumes from its own checkpoints",
    "TensorBoard": "for its files, set trackers: ['tensorboard'] in overrides",
    "CSVLogger": "the run writes these values to metrics.jsonl, and result.history has them",
    "ProgbarLogger": "the argument progress sets how progress is shown",
    "BaseLogger": "the run averages the metrics of an epoch itself",
    "SwapEMAWeights": "the run evaluates averages of the weights itself, if the optimizer keeps "
    "them (use_ema=True), and ends with them",
    "TerminateOnNaN": "the run ends with an error if its loss is NaN or infinite",
}
_WITHOUT_EFFECT = ("History", "RemoteMonitor")
# What the mode `auto` of Keras 3 is for the metrics of Keras with these names.
_DECIDED = {"val_loss": "min", "val_accuracy": "max", "val_auc": "max"}
_MONITORS = ("EarlyStopping", "ReduceLROnPlateau", "MonitorCallback")
_RATE_SETTERS = ("LearningRateScheduler", "ReduceLROnPlateau")


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
                note(f"note: {item.place}: {item.name} is not called: {_INSTEAD[item.name]}")

    def on_train_begin(self, run: RunView) -> None:
        """Passes the model, restores the state, and begins an epoch unless one has begun."""
        self._run = run
        self._files = ArrayFiles(run.model_dir)
        optimizer = getattr(self._model, "optimizer", None)
        if optimizer is None:
            optimizer = getattr(run.state.optimizer, "keras_3_optimizer", run.state.optimizer)
            object.__setattr__(self._model, "optimizer", optimizer)  # Not tracked by the model.
        self._check(run, optimizer)
        self._optimizers = [*filter(_has_settable_rate, _parts_of(optimizer))]
        self._rates = [*map(_read_rate, self._optimizers)]
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
        rates = [*map(_read_rate, self._optimizers)]
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
            if rate != _read_rate(optimizer):
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


class KerasCallback:
    """A callback of Keras, and its place in the list that was passed, such as `callbacks[0]`.

    Attributes:
        base: The name of the class of Keras that it is, or that its class extends; "" if none.
        is_called: Whether the run calls it, and does not do something itself.
        may_add_values: Whether the run calls code of the user, which may add values to the logs.
        monitor: The name of the metric that decides what it does, or "".
        is_exact: Whether the config reproduces the weights without it.
    """

    def __init__(self, callback: Any, place: str) -> None:
        self.callback = callback
        self.place = place
        self.name = type(callback).__name__
        own = [cls.__name__ for cls in type(callback).__mro__ if _is_own_class(cls)]
        self.base = own[0] if "Callback" in own else ""
        self._is_of_user = not _is_own_class(type(callback))
        self.is_called = self._is_of_user or self.base not in _INSTEAD
        self.may_add_values = self._is_of_user or self.base == "LambdaCallback"
        self.monitor = str(callback.monitor) if self.base in _MONITORS else ""
        self.is_exact = False

    def skipped_attributes(self) -> Iterator[str]:
        """Yields the attributes that are not part of the state of the callback."""
        yield from ("model", "_model", "params", "validation_data")
        if self.monitor:  # In the mode `auto`, Keras 3 lets the sign say which values are better.
            yield from ("mode", "min_delta")

    def _problem(self, code: str, text: str) -> Problem:
        return Problem(self.place, text, _ORIGIN, code)

    def unknown_monitor(self, known: Iterable[str]) -> Problem:
        """Returns the problem of a callback whose metric is not one of the known ones."""
        text = unknown_name_message("metric", self.monitor, sorted(known))
        return self._problem("unknown-name", f"{self.name}: {text}")

    def problems(self, *, evaluates: bool) -> Iterator[Problem]:
        """Yields the reasons why the callback cannot be called."""
        if not self.base:
            is_class = isinstance(self.callback, type)
            what = f"the class {self.callback.__name__}" if is_class else self.name
            expected = (
                "an object of a subclass of orbit_runner.Callback or keras.callbacks.Callback"
            )
            yield self._problem("wrong-type", f"got {what}, expected {expected}")
        elif self.base in _INSTEAD and self.base != "TerminateOnNaN":
            if self._is_of_user:
                text = (
                    f"{self.name} extends {self.base}, which is not called: {_INSTEAD[self.base]}"
                )
                advice = "extend keras.callbacks.Callback for code of your own"
                yield self._problem("not-supported", f"{text}\n{advice}")
        elif methods := [name for name in _BATCH_METHODS if _is_overridden(self.callback, name)]:
            verb = "is" if len(methods) == 1 else "are"
            text = f"{self.name}.{', '.join(methods)} {verb} not called\n{_IN_GRAPH}"
            yield self._problem("not-supported", text)
        elif self.monitor.startswith("val_") and not evaluates:
            text = (
                f"{self.name}(monitor={self.monitor!r}) needs evaluations, and there are no "
                "validation data\nset validation or validation_split, or "
                f"monitor={self.monitor.removeprefix('val_')!r}"
            )
            yield self._problem("not-set", text)

    def conflicts(self, optimizer: Any) -> Iterator[Problem]:
        """Yields the reasons why the callback does not suit an optimizer."""
        if self.base not in _RATE_SETTERS:
            return
        sets = f"{self.name} sets the learning rate, but"
        if _package(self.callback) != _package(optimizer):
            text = (
                f"{sets} is not of the Keras of the optimizer\n"
                "pass an optimizer to compile or run, instead of trainer.optimizer_config"
            )
            yield self._problem("conflict", text)
        elif not all(map(_has_settable_rate, _parts_of(optimizer))):  # Keras 2 would ignore it.
            text = (
                f"{sets} that of the optimizer follows a schedule\n"
                "remove the callback, or set a constant learning rate"
            )
            yield self._problem("conflict", text)

    def equal_setting(self) -> Mapping[str, Any] | None:
        """Returns the setting, by path, that has the same effect on the weights.

        Returns {} if the callback has no effect on them, and None if there is no such setting.
        """
        callback = self.callback
        if self._is_of_user:
            return None
        if self.base in _WITHOUT_EFFECT or self.base in _INSTEAD:
            return {}
        monitor = self.monitor
        if (
            self.base != "EarlyStopping"
            or not monitor.startswith("val_")
            or callback.restore_best_weights
            or callback.start_from_epoch
            or callback.baseline is not None
        ):
            return None
        if callback.monitor_op is not None:
            mode: str | None = "max" if callback.monitor_op(1.0, 0.0) else "min"
        else:
            mode = _DECIDED.get(monitor) if callback.mode == "auto" else callback.mode
        if mode is None:
            return None
        rule = {
            "metric": "validation_loss" if monitor == "val_loss" else monitor.removeprefix("val_"),
            "metric_comp": "higher" if mode == "max" else "lower",
            "patience": max(1, int(callback.patience)),
            "min_delta": abs(float(callback.min_delta)),
        }
        return {"trainer.early_stopping": rule}


def _is_own_class(cls: type) -> bool:
    """Returns whether a class is one of Keras itself."""
    return cls.__module__.partition(".")[0] in _PACKAGES


def _package(value: object) -> str:
    """Returns the package of the Keras that made an object, or that its class extends; or ""."""
    packages = (cls.__module__.partition(".")[0] for cls in type(value).__mro__)
    return next((package for package in packages if package in _PACKAGES), "")


def _is_overridden(callback: Any, method: str) -> bool:
    """Returns whether a callback has a method that `Callback` or `TerminateOnNaN` does not have."""
    owner = next((cls for cls in type(callback).__mro__ if method in vars(cls)), object)
    plain = owner.__name__ in ("Callback", "TerminateOnNaN") and _is_own_class(owner)
    return method in vars(callback) or not (plain or owner is object)


def _parts_of(optimizer: Any) -> list[Any]:
    """Returns the optimizers that an optimizer consists of, or itself."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of loss scaling
    return [*getattr(inner, "optimizers", [inner])]


def _has_settable_rate(optimizer: Any) -> bool:
    """Returns whether the learning rate of an optimizer can be set: it follows no schedule."""
    if callable(optimizer.learning_rate):
        return False
    try:
        optimizer.learning_rate = _read_rate(optimizer)
    except TypeError:
        return False
    return True


def _read_rate(optimizer: Any) -> float:
    """Returns the learning rate of an optimizer."""
    import tensorflow as tf

    return float(tf.convert_to_tensor(optimizer.learning_rate))
