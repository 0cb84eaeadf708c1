"""What makes runs reproducible, and the reasons that are reported when they are not."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.digits import digits_config
from tests.support.toy import (
    Notes,
    ToyTask,
    make_strategy,
    run_and_resume,
    session_of,
    toy_config,
)


class NoisyToy(ToyTask):
    """Adds noise in its evaluation, as a task with randomly drawn negatives does."""

    def validation_step(self, inputs, model, metrics=None):
        features, labels, weights = inputs
        noise = tf.random.normal(tf.shape(features))
        return super().validation_step((features + noise, labels, weights), model, metrics)


def _evaluate(config, folder, at):
    strategy = make_strategy("mirrored2")
    with strategy.scope():
        task = NoisyToy(config.task)
    session = session_of(config, folder, strategy, task=task)
    session.state.global_step.assign(at)
    # These fit the labels exactly, so that the loss comes from the noise alone.
    session.state.model.set_weights([np.ones([3, 1])])
    with strategy.scope():
        steps = tf.constant(session.validation_steps)
        return float(session.evaluator.evaluate(steps)["validation_loss"])


@pytest.mark.slow
def test_evaluation_noise_is_a_function_of_the_step(tmp_path):
    config = toy_config()
    once = _evaluate(config, tmp_path, at=7)
    assert _evaluate(config, tmp_path, at=7) == once
    assert _evaluate(config, tmp_path, at=8) != once
    other = config.replace(runtime=config.runtime.replace(seed=9))
    assert _evaluate(other, tmp_path, at=7) != once


def test_evaluation_noise_differs_between_batches(tmp_path):
    """Each batch draws its own noise, and a second evaluation draws the same again."""
    config = toy_config(task__num_examples=16)
    session = session_of(config, tmp_path, make_strategy("one_device"), task=NoisyToy(config.task))
    drawn = []
    evaluator = session.evaluator
    step = session.task.validation_step

    def watched(inputs, model, metrics=None):
        noise = tf.random.normal([4])
        tf.py_function(lambda value: drawn.append(value.numpy()), [noise], [])
        return step(inputs, model=model, metrics=metrics)

    session.task.validation_step = watched
    with session.strategy.scope():
        evaluator.evaluate(tf.constant(2))
        evaluator.evaluate(tf.constant(2))
    assert len(drawn) == 4
    assert not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[:2], drawn[2:])


class RawToy(ToyTask):
    """Draws with a raw op, which is not given a key."""

    def train_step(self, inputs, model, optimizer, metrics=None):
        features, labels = inputs
        noise = tf.raw_ops.RandomUniform(shape=tf.shape(features), dtype=tf.float32, seed=1)
        return super().train_step((features + noise, labels), model, optimizer, metrics)


class StreamingToy(ToyTask):
    """Has an input pipeline that can start only with the first batch."""

    def build_inputs(self, params, input_context=None):
        return super().build_inputs(params, input_context)


@pytest.mark.promise("weights", "the run reports why it is not reproducible")
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("task", "changes", "said"),
    [
        (ToyTask, {}, []),
        (NoisyToy, {}, []),
        (
            RawToy,
            {},
            [
                "a resumed run draws different random numbers in 1 ops, such as RandomUniform "
                "(RandomUniform)"
            ],
        ),
        (StreamingToy, {}, []),
        (
            StreamingToy,
            {"trainer__replay_inputs": False},
            ["the task's input pipeline starts over when a run is resumed"],
        ),
        (ToyTask, {"runtime__deterministic": False}, ["runtime.deterministic is false"]),
    ],
)
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_reasons_for_inexact_runs_are_reported(strategy, task, changes, said, tmp_path):
    from orbit_runner.determinism.numerics import configure_numerics
    from orbit_runner.train_lib import run_experiment

    config, verdict = toy_config(**changes), Notes()
    configure_numerics(config.runtime)
    strategy_ = make_strategy(strategy)
    with strategy_.scope():
        built = task(config.task)
    run_experiment(strategy_, built, "train", config, str(tmp_path), callbacks=[verdict])
    replicas = strategy_.num_replicas_in_sync
    assert verdict.reasons == [reason.replace("1 ops", f"{replicas} ops") for reason in said]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "xla", "pieces"), [("one_device", True, 1), ("mirrored2", False, 2)]
)
def test_dropout_is_the_same_after_a_resume(strategy, xla, pieces, tmp_path):
    config = digits_config(
        task__model__dropout_rate=0.5,
        trainer__gradient_accumulation_steps=pieces,
        trainer__train_steps=40,
        runtime__enable_xla=xla,
    )
    run_and_resume(config, tmp_path, strategy, at=23)


def test_each_step_and_replica_draws_different_random_numbers(tmp_path):
    from orbit_runner.determinism.numerics import configure_numerics
    from orbit_runner.train_lib import run_experiment

    drawn = []

    class DrawingToy(ToyTask):
        def train_step(self, inputs, model, optimizer, metrics=None):
            noise = tf.random.uniform([])
            tf.py_function(lambda value: drawn.append(float(value)), [noise], [])
            return super().train_step(inputs, model, optimizer, metrics)

    config, strategy = toy_config(trainer__train_steps=6), make_strategy("mirrored2")
    configure_numerics(config.runtime)
    with strategy.scope():
        task = DrawingToy(config.task)
    run_experiment(strategy, task, "train", config, str(tmp_path))
    assert len(drawn) == 12
    assert len(set(drawn)) == 12
