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


def find_problems(callback: Any, *, evaluates: bool) -> Iterator[tuple[str, str]]:
    """Yields the codes and texts of the reasons why a callback cannot be called."""
    name = type(callback).__name__
    if not _is_of_keras(callback):
        what = f"the class {callback.__name__}" if isinstance(callback, type) else name
        expected = "an object of a subclass of orbit_runner.Callback or keras.callbacks.Callback"
        yield "wrong-type", f"got {what}, expected {expected}"
        return
    base = keras_name(callback)
    if base in INSTEAD and base != "TerminateOnNaN":
        if not is_own_class(type(callback)):
            text = f"{name} extends {base}, which is not called: {INSTEAD[base]}"
            yield "not-supported", f"{text}\nextend keras.callbacks.Callback for code of your own"
        return
    methods = [method for method in _BATCH_METHODS if _is_overridden(callback, method)]
    if methods:
        verb = "is" if len(methods) == 1 else "are"
        yield "not-supported", f"{name}.{', '.join(methods)} {verb} not called\n{_IN_GRAPH}"
    monitor = monitor_of(callback)
    if monitor.startswith("val_") and not evaluates:
        text = f"{name}(monitor={monitor!r}) needs evaluations, and there are no validation data"
        advice = f"set validation or validation_split, or monitor={monitor.removeprefix('val_')!r}"
        yield "not-set", f"{text}\n{advice}"


def _is_of_keras(callback: Any) -> bool:
    return any(cls.__name__ == "Callback" and is_own_class(cls) for cls in type(callback).__mro__)


def is_own_class(cls: type) -> bool:
    """Returns whether a class is one of Keras itself."""
    return cls.__module__.partition(".")[0] in _PACKAGES


def keras_name(callback: Any) -> str:
    """Returns the name of the class of Keras that a callback is, or that its class extends."""
    return next(cls.__name__ for cls in type(callback).__mro__ if is_own_class(cls))


def may_add_values(callback: Any) -> bool:
    """Returns whether a callback runs code of the user, which may add values to the logs."""
    return not is_own_class(type(callback)) or keras_name(callback) == "LambdaCallback"


def _is_overridden(callback: Any, method: str) -> bool:
    """Returns whether a callback has a method that `Callback` or `TerminateOnNaN` does not have."""
    owner = next((cls for cls in type(callback).__mro__ if method in vars(cls)), object)
    plain = owner.__name__ in ("Callback", "TerminateOnNaN") and is_own_class(owner)
    return method in vars(callback) or not (plain or owner is object)


def monitor_of(callback: Any) -> str:
    """Returns the name of the metric that decides what a callback does, or ""."""
    return str(callback.monitor) if keras_name(callback) in _MONITORS else ""


def is_undecided(callback: Any) -> bool:
    """Returns whether a callback of Keras 3 asks the model which values of a metric are better."""
    return asks_model_for_operator(callback) and callback.mode == "auto"


def skipped_attributes(callback: Any) -> Iterator[str]:
    """Yields the attributes that are not part of the state of a callback."""
    yield from ("model", "_model", "params", "validation_data")
    if is_undecided(callback):  # Its sign says which values are better.
        yield from ("mode", "min_delta")


def equal_setting(callback: Any) -> Mapping[str, Any] | None:
    """Returns the setting, by path, that has the same effect on the weights as a callback.

    Returns {} if a callback has no effect on them, and None if there is no such setting.
    """
    name = keras_name(callback)
    if not is_own_class(type(callback)):
        return None
    if name in _WITHOUT_EFFECT or name in INSTEAD:
        return {}
    monitor = monitor_of(callback)
    if name != "EarlyStopping" or not monitor.startswith("val_"):
        return None
    if callback.restore_best_weights or callback.baseline is not None or callback.start_from_epoch:
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


def unknown_monitor(place: str, callback: Any, known: Iterable[str]) -> Problem:
    """Returns the problem of a callback whose metric is not one of the known ones."""
    text = unknown_name_message("metric", callback.monitor, sorted(known))
    return Problem(place, f"{type(callback).__name__}: {text}", ORIGIN, "unknown-name")


def find_conflicts(callback: Any, run: RunView, optimizer: Any) -> Iterator[tuple[str, str]]:
    """Yields the codes and texts of the reasons why a callback does not suit a run."""
    name = type(callback).__name__
    base = keras_name(callback)
    if base in INSTEAD:
        if base == SWAP and run.state.ema is None:
            yield "conflict", f"{name} needs averages of the weights\n{_AVERAGES}"
        return
    if is_undecided(callback) and callback.monitor_op is None and not _decide(callback):
        text = f"{name}(monitor={callback.monitor!r}): it is not known which values are better"
        yield "not-set", f"{text}\nset mode='max' or mode='min'"
    if base in _RATE_SETTERS and not all(map(has_settable_rate, parts_of(optimizer))):
        text = f"{name} sets the learning rate, but that of the optimizer follows a schedule"
        yield "conflict", f"{text}\nremove the callback, or set a constant learning rate"


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
