"""Callbacks of Keras in a run: called, replaced by settings, or refused with what to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tf_keras

import orbit_runner
from orbit_runner.train.callbacks.keras_callbacks import KerasCallback, sort_callbacks
from tests.support.problems import raises

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
    ("make", "code"),
    [
        (lambda: callbacks.ModelCheckpoint("a"), "not-supported"),
        (lambda: callbacks.ReduceLROnPlateau(), "not-supported"),
        (lambda: callbacks.LearningRateScheduler(_ignore), "not-supported"),
        (lambda: callbacks.TensorBoard("a"), "not-supported"),
        (lambda: callbacks.CSVLogger("a"), "not-supported"),
        (lambda: callbacks.BackupAndRestore("a"), "not-supported"),
        (lambda: _Stop(), "not-supported"),
        (lambda: callbacks.EarlyStopping("loss"), "not-supported"),
        (lambda: callbacks.EarlyStopping(restore_best_weights=True), "not-supported"),
        (lambda: callbacks.EarlyStopping(baseline=0.5), "not-supported"),
        (lambda: _Batches(), "not-supported"),
        (lambda: callbacks.LambdaCallback(on_batch_end=_ignore), "not-supported"),
        (lambda: _Tests(), "not-supported"),
        (lambda: _Epochs, "wrong-type"),
        (lambda: 3, "wrong-type"),
    ],
)
def test_callback_that_cannot_be_called_is_refused_with_what_to_use_instead(
    make: Callable[[], Any], code: str
) -> None:
    with raises(code):
        sort_callbacks([make()], evaluates=True)


@pytest.mark.parametrize(
    "make", [_Epochs, callbacks.EarlyStopping, lambda: callbacks.LambdaCallback(_ignore)]
)
def test_epochs_need_evaluations(make: Callable[[], Any]) -> None:
    with raises("not-set"):
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
