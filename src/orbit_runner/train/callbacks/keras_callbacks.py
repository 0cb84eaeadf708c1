"""Callbacks of Keras in a run: those that it can call, and the settings to use instead of others.

Does not import Keras, which made the callbacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.metric_records import is_result
from orbit_runner.run_directory.run_data import NON_METRICS
from orbit_runner.train.callbacks.base import Callback, Logs, RunView
from orbit_runner.utils.metrics import scalars

_PACKAGES = ("tf_keras", "keras")
_IN_GRAPH = (
    "steps run in a graph, in which nothing can be called; use on_log of orbit_runner.Callback, "
    "which is called every trainer.summary_interval steps"
)
# Methods that a run cannot call, and what to use instead. Keras calls those that are not listed
# here and not called below only in `evaluate` and `predict`.
_NOT_CALLED = {
    **dict.fromkeys(
        ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end"), _IN_GRAPH
    ),
    **dict.fromkeys(("on_test_batch_begin", "on_test_batch_end"), _IN_GRAPH),
    **dict.fromkeys(
        ("on_test_begin", "on_test_end"), "use on_evaluate of orbit_runner.Callback instead"
    ),
}
_RATE = (
    "set trainer.optimizer_config.learning_rate in overrides, or pass an optimizer with a schedule"
)
# Keras' own classes, whose purpose the runner has.
_INSTEAD = {
    "ModelCheckpoint": "the run saves checkpoints (trainer.checkpoint_interval); for the best one, "
    "set trainer.best_checkpoint_export_subdir and trainer.best_checkpoint_eval_metric",
    "BackupAndRestore": "remove it: the run resumes from its own checkpoints",
    "TensorBoard": "set trackers: ['tensorboard'] in overrides",
    "CSVLogger": "remove it: the result has history, and the run directory metrics.jsonl",
    "History": "remove it: the result has history",
    "ProgbarLogger": "remove it, and use the argument progress",
    "RemoteMonitor": "name a tracker in overrides: trackers",
    "LearningRateScheduler": _RATE,
    "ReduceLROnPlateau": _RATE,
    "SwapEMAWeights": "set trainer.optimizer_config.ema in overrides",
    "EarlyStopping": "pass an object of Keras' own class",
}
_EARLY_STOPPING = "trainer.early_stopping"
# What Keras takes for a metric of which more is better.
_HIGHER = ("acc", "accuracy", "auc")


def sort_callbacks(
    callbacks: Sequence[Any], *, evaluates: bool
) -> tuple[list[Callback], dict[str, Any]]:
    """Returns the callbacks of a run, and the settings that replace callbacks of Keras, by path.

    Args:
        callbacks: Callbacks of this package and of Keras.
        evaluates: Whether the run evaluates; epochs end with an evaluation.

    Raises:
        RunnerError: The run cannot do what a callback is for.
    """
    kept: list[Callback] = []
    settings: dict[str, Any] = {}
    for index, callback in enumerate(callbacks):
        where = f"callbacks[{index}]"
        if isinstance(callback, Callback):
            reason = "was passed as an object, which config.yaml does not name"
            callback.inexact_reason = f"{where}: {type(callback).__name__} {reason}"
            kept.append(callback)
            continue
        if not _is_of_keras(callback):
            is_class = isinstance(callback, type)
            what = f"the class {callback.__name__}" if is_class else type(callback).__name__
            raise RunnerError(
                f"{where}: got {what}, expected an object of a subclass of "
                "orbit_runner.Callback or tf_keras.callbacks.Callback",
                code="wrong-type",
            )
        name = _keras_name(callback)
        if name == "EarlyStopping" and _is_own_class(type(callback)):
            _require_evaluation(where, name, evaluates=evaluates)
            settings[_EARLY_STOPPING] = _early_stopping(callback, where)
        elif name in _INSTEAD:
            raise RunnerError(
                f"{where}: {name} is not called\n{_INSTEAD[name]}", code="not-supported"
            )
        elif name != "TerminateOnNaN":  # Each run ends if its loss is NaN.
            _check_methods(callback, where, evaluates=evaluates)
            kept.append(KerasCallback(callback, where))
    return kept, settings


def _is_of_keras(callback: Any) -> bool:
    return any(cls.__name__ == "Callback" and _is_own_class(cls) for cls in type(callback).__mro__)


def _is_own_class(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in _PACKAGES


def _keras_name(callback: Any) -> str:
    """Returns the name of the class of Keras that a callback is, or that its class extends."""
    return next(cls.__name__ for cls in type(callback).__mro__ if _is_own_class(cls))


def _require_evaluation(where: str, what: str, *, evaluates: bool) -> None:
    if not evaluates:
        raise RunnerError(
            f"{where}: {what} needs evaluations, and there are no validation data\n"
            "set validation or validation_split",
            code="not-set",
        )


def _check_methods(callback: Any, where: str, *, evaluates: bool) -> None:
    name = type(callback).__name__
    for method, advice in _NOT_CALLED.items():
        if _is_overridden(callback, method):
            raise RunnerError(
                f"{where}: {name}.{method} is not called\n{advice}", code="not-supported"
            )
    for method in ("on_epoch_begin", "on_epoch_end"):
        if _is_overridden(callback, method):
            _require_evaluation(where, f"{name}.{method}", evaluates=evaluates)


def _is_overridden(callback: Any, method: str) -> bool:
    module = getattr(getattr(callback, method, None), "__module__", None) or "keras"
    return module.partition(".")[0] not in _PACKAGES


def _early_stopping(callback: Any, where: str) -> dict[str, Any]:
    monitor = str(callback.monitor)
    if not monitor.startswith("val_"):
        raise RunnerError(
            f"{where}: EarlyStopping(monitor={monitor!r}) compares training records, expected the "
            "metric of an evaluation\nuse one that begins with 'val_', such as 'val_loss'",
            code="not-supported",
        )
    metric = "validation_loss" if monitor == "val_loss" else monitor.removeprefix("val_")
    comparison = "higher" if _prefers_higher(callback, monitor) else "lower"
    if callback.restore_best_weights:
        best = {
            "trainer.best_checkpoint_export_subdir": "best",
            "trainer.best_checkpoint_eval_metric": metric,
            "trainer.best_checkpoint_metric_comp": comparison,
        }
        raise RunnerError(
            f"{where}: EarlyStopping(restore_best_weights=True) is not supported\n"
            f"keep the best checkpoint, with overrides={best},\n"
            "and build its model: orbit_runner.load(result.model_dir).model('best')",
            code="not-supported",
        )
    for name in ("baseline", "start_from_epoch"):
        if getattr(callback, name, None):
            raise RunnerError(
                f"{where}: EarlyStopping({name}={getattr(callback, name)}) is not supported\n"
                f"remove it; {_EARLY_STOPPING} has a threshold",
                code="not-supported",
            )
    return {
        "metric": metric,
        "metric_comp": comparison,
        "patience": max(1, int(callback.patience)),
        "min_delta": abs(float(callback.min_delta)),
    }


def _prefers_higher(callback: Any, monitor: str) -> bool:
    compare = getattr(callback, "monitor_op", None)
    if compare is not None:
        return bool(compare(1.0, 0.0))
    mode = getattr(callback, "mode", "auto")
    return mode == "max" or (mode == "auto" and monitor.endswith(_HIGHER))


class KerasCallback(Callback):
    """Calls a callback of Keras.

    An epoch ends with its evaluation. The logs have the names of Keras: `val_loss`, `val_accuracy`,
    and for the training `loss`, `accuracy`, as averages since the last record.
    """

    def __init__(self, callback: Any, where: str) -> None:
        self._callback = callback
        self._epoch = 0
        self._trained: Logs = {}
        name = type(callback).__name__
        self.inexact_reason = (
            f"{where}: {name} was passed as an object, which config.yaml does not name, and whose "
            "state is not in checkpoints"
        )

    def on_train_begin(self, run: RunView) -> None:
        """Passes the model, and begins the first epoch."""
        self._callback.set_params({"epochs": None, "steps": None, "verbose": 0})
        self._callback.set_model(run.model)
        run.model.stop_training = False
        self._callback.on_train_begin({})
        self._begin_epoch(run)

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Stores the metrics of the training."""
        self._trained = logs

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Ends an epoch, and stops the run if the callback has set `model.stop_training`."""
        self._callback.on_epoch_end(self._epoch, dict(self._keras_logs(logs)))
        self._epoch += 1
        if run.model.stop_training:
            run.stop(f"{type(self._callback).__name__} set stop_training")
        else:
            self._begin_epoch(run)

    def on_train_end(self, run: RunView) -> None:
        """Ends the training."""
        self._callback.on_train_end({})

    def get_state(self) -> int:
        """Returns the number of epochs."""
        return self._epoch

    def set_state(self, state: int) -> None:
        """Restores the number of epochs."""
        self._epoch = state

    def _begin_epoch(self, run: RunView) -> None:
        if run.step < run.train_steps:
            self._callback.on_epoch_begin(self._epoch, {})

    def _keras_logs(self, logs: Logs) -> Iterator[tuple[str, float]]:
        for name, value in scalars(self._trained).items():
            if name not in NON_METRICS and is_result(name):
                yield name.removeprefix("training_"), value
        for name, value in scalars(logs).items():
            if name not in NON_METRICS:
                yield f"val_{name.removeprefix('validation_')}", value
