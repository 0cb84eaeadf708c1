"""Kinds of callbacks of Keras: what a run can call, does itself, or cannot do.

Does not import Keras, which made the callbacks.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orbit_runner.config.errors import Origin, Problem
from orbit_runner.errors import unknown_name_message
from orbit_runner.tf_internals import asks_model_for_operator, set_monitor_operator

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import RunView

_PACKAGES = ("tf_keras", "keras")
ORIGIN = Origin("run(callbacks=…)")
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
SWAP = "SwapEMAWeights"
_AVERAGES = "pass an optimizer with use_ema=True, or set trainer.optimizer_config.ema in overrides"
# What a run does in place of classes of Keras, which it does not call.
INSTEAD = {
    "ModelCheckpoint": _CHECKPOINTS,
    "OrbaxCheckpoint": _CHECKPOINTS,
    "BackupAndRestore": "the run resumes from its own checkpoints",
    "TensorBoard": "for its files, set trackers: ['tensorboard'] in overrides",
    "CSVLogger": "the run writes these values to metrics.jsonl, and result.history has them",
    "ProgbarLogger": "the argument progress sets how progress is shown",
    "BaseLogger": "the run averages the metrics of an epoch itself",
    SWAP: "the run evaluates averages of the weights itself, if there are any, and ends with them",
    "TerminateOnNaN": "the run ends with an error if its loss is NaN or infinite",
}
_WITHOUT_EFFECT = ("History", "RemoteMonitor")
# What the mode `auto` of Keras 3 is for the metrics of Keras with these names.
_DECIDED = {"val_loss": "min", "val_accuracy": "max", "val_auc": "max"}
_MONITORS = ("EarlyStopping", "ReduceLROnPlateau", "MonitorCallback")
_RATE_SETTERS = ("LearningRateScheduler", "ReduceLROnPlateau")
# Parts of the names of metrics of which more or less is better, as in Keras 3.
_HIGHER = re.compile(
    "acc|auc|precision|recall|sensitivity|specificity|f1_score|fbeta|r2_score|io_?u|similarity|"
    "correlation"
)
_LOWER = re.compile("loss|error|entropy|divergence|hinge|poisson|log_?cosh|mse|mae|mape|msle")


class KerasCallback:
    """A callback of Keras, and its place in the list that was passed, such as `callbacks[0]`."""

    def __init__(self, callback: Any, place: str) -> None:
        self.callback = callback
        self.place = place
        self.name = type(callback).__name__
        self.is_exact = False  # whether the config reproduces the weights without it

    @property
    def base(self) -> str:
        """The name of the class of Keras that the callback is, or that its class extends."""
        return next(cls.__name__ for cls in type(self.callback).__mro__ if _is_own_class(cls))

    @property
    def _is_of_user(self) -> bool:
        return not _is_own_class(type(self.callback))

    @property
    def is_called(self) -> bool:
        """Whether the run calls it, and does not do something itself."""
        return self._is_of_user or self.base not in INSTEAD

    @property
    def may_add_values(self) -> bool:
        """Whether the run calls code of the user, which may add values to the logs."""
        return self.is_called and (self._is_of_user or self.base == "LambdaCallback")

    @property
    def monitor(self) -> str:
        """The name of the metric that decides what the callback does, or ""."""
        return str(self.callback.monitor) if self.base in _MONITORS else ""

    @property
    def _is_undecided(self) -> bool:
        """Whether a callback of Keras 3 asks the model which values of a metric are better."""
        return asks_model_for_operator(self.callback) and self.callback.mode == "auto"

    def skipped_attributes(self) -> Iterator[str]:
        """Yields the attributes that are not part of the state of the callback."""
        yield from ("model", "_model", "params", "validation_data")
        if self._is_undecided:  # Its sign says which values are better.
            yield from ("mode", "min_delta")

    def _problem(self, code: str, text: str) -> Problem:
        return Problem(self.place, text, ORIGIN, code)

    def unknown_monitor(self, known: Iterable[str]) -> Problem:
        """Returns the problem of a callback whose metric is not one of the known ones."""
        text = unknown_name_message("metric", self.callback.monitor, sorted(known))
        return self._problem("unknown-name", f"{self.name}: {text}")

    def problems(self, *, evaluates: bool) -> Iterator[Problem]:
        """Yields the reasons why the callback cannot be called."""
        if not any(
            c.__name__ == "Callback" and _is_own_class(c) for c in type(self.callback).__mro__
        ):
            is_class = isinstance(self.callback, type)
            what = f"the class {self.callback.__name__}" if is_class else self.name
            expected = (
                "an object of a subclass of orbit_runner.Callback or keras.callbacks.Callback"
            )
            yield self._problem("wrong-type", f"got {what}, expected {expected}")
            return
        base = self.base
        if base in INSTEAD and base != "TerminateOnNaN":
            if self._is_of_user:
                text = f"{self.name} extends {base}, which is not called: {INSTEAD[base]}"
                advice = "extend keras.callbacks.Callback for code of your own"
                yield self._problem("not-supported", f"{text}\n{advice}")
            return
        methods = [method for method in _BATCH_METHODS if _is_overridden(self.callback, method)]
        if methods:
            verb = "is" if len(methods) == 1 else "are"
            text = f"{self.name}.{', '.join(methods)} {verb} not called\n{_IN_GRAPH}"
            yield self._problem("not-supported", text)
        monitor = self.monitor
        if monitor.startswith("val_") and not evaluates:
            text = "needs evaluations, and there are no validation data\n"
            text += (
                f"set validation or validation_split, or monitor={monitor.removeprefix('val_')!r}"
            )
            yield self._problem("not-set", f"{self.name}(monitor={monitor!r}) {text}")

    def conflicts(self, run: RunView, optimizer: Any) -> Iterator[Problem]:
        """Yields the reasons why the callback does not suit a run."""
        base = self.base
        if base in INSTEAD:
            if base == SWAP and run.state.ema is None:
                text = f"{self.name} needs averages of the weights\n{_AVERAGES}"
                yield self._problem("conflict", text)
            return
        if self._is_undecided and self.callback.monitor_op is None and not _decide(self.callback):
            text = f"{self.name}(monitor={self.callback.monitor!r})"
            advice = "it is not known which values are better\nset mode='max' or mode='min'"
            yield self._problem("not-set", f"{text}: {advice}")
        if base in _RATE_SETTERS and not all(map(has_settable_rate, parts_of(optimizer))):
            text = (
                f"{self.name} sets the learning rate, but that of the optimizer follows a schedule"
            )
            advice = "remove the callback, or set a constant learning rate"
            yield self._problem("conflict", f"{text}\n{advice}")

    def equal_setting(self) -> Mapping[str, Any] | None:
        """Returns the setting, by path, that has the same effect on the weights.

        Returns {} if the callback has no effect on them, and None if there is no such setting.
        """
        callback = self.callback
        if self._is_of_user:
            return None
        if self.base in _WITHOUT_EFFECT or self.base in INSTEAD:
            return {}
        monitor = self.monitor
        if self.base != "EarlyStopping" or not monitor.startswith("val_"):
            return None
        if callback.restore_best_weights or callback.start_from_epoch:
            return None
        if callback.baseline is not None:
            return None
        if callback.monitor_op is not None:
            is_higher = bool(callback.monitor_op(1.0, 0.0))
        elif callback.mode == "auto" and monitor not in _DECIDED:
            return None
        else:
            is_higher = (_DECIDED[monitor] if callback.mode == "auto" else callback.mode) == "max"
        rule = {
            "metric": "validation_loss" if monitor == "val_loss" else monitor.removeprefix("val_"),
            "metric_comp": "higher" if is_higher else "lower",
            "patience": max(1, int(callback.patience)),
            "min_delta": abs(float(callback.min_delta)),
        }
        return {"trainer.early_stopping": rule}


def _is_own_class(cls: type) -> bool:
    """Returns whether a class is one of Keras itself."""
    return cls.__module__.partition(".")[0] in _PACKAGES


def _is_overridden(callback: Any, method: str) -> bool:
    """Returns whether a callback has a method that `Callback` or `TerminateOnNaN` does not have."""
    owner = next((cls for cls in type(callback).__mro__ if method in vars(cls)), object)
    plain = owner.__name__ in ("Callback", "TerminateOnNaN") and _is_own_class(owner)
    return method in vars(callback) or not (plain or owner is object)


def _decide(callback: Any) -> bool:
    """Decides which values are better, by the model or else by the name; returns whether it can."""
    with contextlib.suppress(ValueError):  # The model does not know the metric.
        set_monitor_operator(callback)
        return True
    higher = _HIGHER.search(callback.monitor)
    if bool(higher) == bool(_LOWER.search(callback.monitor)):
        return False
    callback.mode = "max" if higher else "min"
    set_monitor_operator(callback)
    return True


def parts_of(optimizer: Any) -> list[Any]:
    """Returns the optimizers that an optimizer consists of, or itself."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of loss scaling
    return [*getattr(inner, "optimizers", [inner])]


def has_settable_rate(optimizer: Any) -> bool:
    """Returns whether the learning rate of an optimizer can be set: it follows no schedule."""
    if callable(optimizer.learning_rate):
        return False
    try:
        optimizer.learning_rate = read_rate(optimizer)
    except TypeError:
        return False
    return True


def read_rate(optimizer: Any) -> float:
    """Returns the learning rate of an optimizer."""
    import tensorflow as tf

    return float(tf.convert_to_tensor(optimizer.learning_rate))


class _Rate(float):
    """A learning rate that can be assigned, as a variable of Keras 3 can."""

    def __new__(cls, optimizer: Any) -> _Rate:
        rate = super().__new__(cls, read_rate(optimizer))
        rate.__dict__["assign"] = functools.partial(setattr, optimizer, "learning_rate")
        return rate


class _OptimizerView:
    """An optimizer of Keras 2 for callbacks of Keras 3, which cannot read its learning rate.

    NumPy cannot convert the variable of a strategy.
    """

    def __init__(self, optimizer: Any) -> None:
        self.__dict__["viewed"] = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.viewed, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.viewed, name, value)

    @property
    def learning_rate(self) -> _Rate:
        """The learning rate."""
        return _Rate(self.viewed)


def readable_optimizer(optimizer: Any, model: Any) -> Any:
    """Returns an optimizer, or a view of it that callbacks of the Keras of a model can read."""
    packages = {
        cls.__module__.partition(".")[0]
        for value in (model, optimizer)
        for cls in type(value).__mro__
    }
    return _OptimizerView(optimizer) if {*_PACKAGES} <= packages else optimizer
