"""The check between the pieces of a loop."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.distribute.process_group import Workers
from orbit_runner.train.loops.loop_pieces import LoopPieces
from orbit_runner.train.nonfinite.finite_check import FiniteCheck
from tests.support.problems import raises
from tests.support.toy import make_strategy, session_of, state_of, toy_config

AVERAGE = {
    "trainer__optimizer_config__optimizer__sgd__momentum": 0.9,
    "trainer__optimizer_config__ema__average_decay": 0.9,
    "task__batch_norm": True,
}


def _check(**changes: Any) -> tuple[Any, FiniteCheck]:
    strategy = make_strategy("mirrored2")
    state = state_of(toy_config(**changes), strategy)
    return state, FiniteCheck(state, Workers(strategy), seconds=-1.0, share=-1.0)


@pytest.mark.parametrize("part", ["weight", "statistic", "slot", "average"])
def test_each_kind_of_variable_is_checked(part: str) -> None:
    state, check = _check(**AVERAGE)
    (statistic, *_) = state.model.non_trainable_variables
    weight = state.model.trainable_variables[-1]
    variable = {
        "weight": weight,
        "statistic": statistic,
        "slot": state.optimizer.get_slot(weight, "momentum"),
        "average": state.ema.averages[-1],
    }[part]
    check.end_piece(4)
    assert check.good_step == 4
    variable.assign(tf.fill(variable.shape, np.inf))
    with raises("diverged") as caught:
        check.end_piece(5)
    assert caught.value.non_finite
    assert check.good_step == 4


def test_large_values_are_finite() -> None:
    state, check = _check()
    state.model.trainable_variables[0].assign(tf.fill([3, 1], 3e38))
    assert check.is_finite()


def test_constants_of_the_model_may_be_infinite() -> None:
    _, check = _check(task__mask=True)
    assert check.is_finite()


def test_running_loss_and_records_are_checked() -> None:
    state, loss = state_of(toy_config(), make_strategy("off")), tf.Variable(1.0)
    workers = Workers(make_strategy("off"))
    records = [(3, {"training_loss": 1.0})]
    settings: dict[str, Any] = {"records": lambda: records, "seconds": -1.0, "share": -1.0}
    check = FiniteCheck(state, workers, loss.read_value, **settings)
    check.end_piece(5)
    records[0][1]["training_loss"] = float("nan")
    with raises("diverged"):
        check.end_piece(5)
    uncounted = FiniteCheck(state, workers, loss.read_value, counts_losses=False, **settings)
    records.clear()
    loss.assign(np.nan)
    with raises("diverged"):
        check.end_piece(5)
    records.append((3, {"training_loss": float("nan")}))
    uncounted.end_piece(5)


def test_loop_ends_at_the_piece_that_is_not_finite(tmp_path: Path) -> None:
    config = toy_config(task__nan_from=30, trainer__train_steps=100, trainer__summary_interval=100)
    run = session_of(config, tmp_path, make_strategy("one_device"))
    trainer = run.trainer
    assert trainer is not None
    check = trainer.finite_check
    assert check is not None
    check._seconds = check._pause = -1.0
    check._share = math.inf
    trainer.pieces = LoopPieces(agree=lambda steps: 10)
    run.checkpoints.restore_or_initialize(run.task)
    with raises("diverged"):
        trainer.train(tf.constant(100))
    assert (run.step, check.good_step) == (40, 30)
