"""Kinds of callbacks of Keras: what a run can call, does itself, or cannot do.

Does not import Keras, which made the callbacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orbit_runner.config.errors import Origin, Problem
from orbit_runner.errors import unknown_name_message

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
# What a run does in place of classes of Keras, which it does not call.
INSTEAD = {
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
        self.is_called = self._is_of_user or self.base not in INSTEAD
        self.may_add_values = self._is_of_user or self.base == "LambdaCallback"
        self.monitor = str(callback.monitor) if self.base in _MONITORS else ""
        self.is_exact = False

    def skipped_attributes(self) -> Iterator[str]:
        """Yields the attributes that are not part of the state of the callback."""
        yield from ("model", "_model", "params", "validation_data")
        if self.monitor:  # In the mode `auto`, Keras 3 lets the sign say which values are better.
            yield from ("mode", "min_delta")

    def _problem(self, code: str, text: str) -> Problem:
        return Problem(self.place, text, ORIGIN, code)

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
        elif self.base in INSTEAD and self.base != "TerminateOnNaN":
            if self._is_of_user:
                text = f"{self.name} extends {self.base}, which is not called: {INSTEAD[self.base]}"
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
        elif not all(map(has_settable_rate, parts_of(optimizer))):  # Keras 2 would ignore it.
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
        if self.base in _WITHOUT_EFFECT or self.base in INSTEAD:
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
