"""Callbacks of Keras in a run: called, replaced by settings, or refused with what to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tf_keras

import orbit_runner
from orbit_runner.errors import RunnerError
from orbit_runner.train.callbacks.keras_callbacks import KerasCallback, sort_callbacks

callbacks = tf_keras.callbacks


def _ignore(*_: object) -> None:
    pass


class _Batches(callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


class _Tests(callbacks.Callback):
    def on_test_end(self, logs: Any = None) -> None:
        pass


class _Stop(callbacks.EarlyStopping):
    pass


class _Epochs(callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: callbacks.ModelCheckpoint("a"), "ModelCheckpoint is not called\nthe run saves"),
        (lambda: callbacks.ReduceLROnPlateau(), "trainer.optimizer_config.learning_rate"),
        (lambda: callbacks.LearningRateScheduler(_ignore), "LearningRateScheduler is not called"),
        (lambda: callbacks.TensorBoard("a"), r"TensorBoard is not called\nset trackers: "),
        (lambda: callbacks.CSVLogger("a"), "metrics.jsonl"),
        (lambda: callbacks.BackupAndRestore("a"), "resumes from its own checkpoints"),
        (lambda: _Stop(), "EarlyStopping is not called\npass an object of Keras' own class"),
        (lambda: callbacks.EarlyStopping("loss"), "compares training records"),
        (lambda: callbacks.EarlyStopping(restore_best_weights=True),
         r"best_checkpoint_export_subdir(.|\n)*model\('best'\)"),
        (lambda: callbacks.EarlyStopping(baseline=0.5), "baseline=0.5"),
        (lambda: _Batches(), "_Batches.on_train_batch_end is not called\nsteps run in a graph"),
        (lambda: callbacks.LambdaCallback(on_batch_end=_ignore), "LambdaCallback.on_batch_end is"),
        (lambda: _Tests(), "_Tests.on_test_end is not called\nuse on_evaluate"),
        (lambda: _Epochs, "got type, expected an object"),
        (lambda: 3, "got int, expected an object"),
    ],
)  # fmt: skip
def test_callback_that_cannot_be_called_is_refused_with_what_to_use_instead(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(RunnerError, match=rf"^callbacks\[0\]: (.|\n)*{message}"):
        sort_callbacks([make()], evaluates=True)


@pytest.mark.parametrize(
    "make", [_Epochs, callbacks.EarlyStopping, lambda: callbacks.LambdaCallback(_ignore)]
)
def test_epochs_need_evaluations(make: Callable[[], Any]) -> None:
    with pytest.raises(RunnerError, match="there are no validation data\nset validation or"):
        sort_callbacks([make()], evaluates=False)


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ({"patience": 3}, ("validation_loss", "lower", 3, 0.0)),
        ({"patience": 0}, ("validation_loss", "lower", 1, 0.0)),
        ({"monitor": "val_accuracy", "min_delta": 0.01, "patience": 2},
         ("accuracy", "higher", 2, 0.01)),
        ({"monitor": "val_error", "mode": "max", "patience": 2}, ("error", "higher", 2, 0.0)),
        ({"min_delta": 0.1, "patience": 2}, ("validation_loss", "lower", 2, 0.1)),
    ],
)  # fmt: skip
def test_early_stopping_is_a_setting(
    arguments: dict[str, Any], settings: tuple[str, str, int, float]
) -> None:
    kept, replaced = sort_callbacks([callbacks.EarlyStopping(**arguments)], evaluates=True)
    names = ("metric", "metric_comp", "patience", "min_delta")
    assert kept == []
    assert replaced == {"trainer.early_stopping": dict(zip(names, settings, strict=True))}


def test_others_are_kept_in_order_and_the_run_is_not_reproducible_with_them() -> None:
    own = orbit_runner.Callback()
    given = [callbacks.TerminateOnNaN(), _Epochs(), own, callbacks.LambdaCallback(_ignore)]
    kept, replaced = sort_callbacks(given, evaluates=True)
    assert [type(callback) for callback in kept] == [KerasCallback, type(own), KerasCallback]
    assert kept[1] is own
    assert replaced == {}
    assert [callback.inexact_reason.partition(" was")[0] for callback in kept] == [
        "callbacks[1]: _Epochs", "callbacks[2]: Callback", "callbacks[3]: LambdaCallback",
    ]  # fmt: skip
