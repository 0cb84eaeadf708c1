"""Computing gradients without applying them: in pieces of a batch, and with XLA."""

import time

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.train.gradients import GradientRecorder, split_step
from tests.support.problems import raises
from tests.support.toy import make_strategy, toy_config, toy_task

BATCH = 16


def _gradient(strategy, scaled, **split):
    """Takes one step of plain SGD at rate 1 and returns the change of the weights."""
    tf_keras.utils.set_random_seed(3)
    config = toy_config(task__num_examples=BATCH)
    task = toy_task(config)
    with strategy.scope():
        model = task.build_model()
        inner = tf_keras.optimizers.SGD(1.0)
        inner.build(model.trainable_variables)
        optimizer = (
            tf_keras.mixed_precision.LossScaleOptimizer(inner, dynamic=False, initial_scale=128.0)
            if scaled
            else inner
        )

    def train_step(inputs, to):
        return task.train_step(inputs, model=model, optimizer=to, metrics=[])

    def plain(inputs):
        return train_step(inputs, optimizer)

    step = split_step(train_step, optimizer, loss=task.loss, **split) if split else plain
    features, labels = task.arrays()
    share = BATCH // strategy.num_replicas_in_sync

    def value(context):
        rows = slice(
            context.replica_id_in_sync_group * share, (context.replica_id_in_sync_group + 1) * share
        )
        return tf.constant(features[rows]), tf.constant(labels[rows])

    inputs = strategy.experimental_distribute_values_from_function(value)

    @tf.function
    def run():
        return strategy.run(step, args=(inputs,))

    (before,) = model.get_weights()
    losses = strategy.experimental_local_results(run()[task.loss])
    np.testing.assert_allclose(
        np.mean([loss.numpy() for loss in losses]),
        np.mean((features @ before - labels) ** 2),
        rtol=1e-5,
    )
    return before - model.get_weights()[0]


def _by_hand():
    tf_keras.utils.set_random_seed(3)
    task = toy_task(toy_config(task__num_examples=BATCH))
    (kernel,) = task.build_model().get_weights()
    features, labels = task.arrays()
    return 2 / BATCH * features.T @ (features @ kernel - labels)


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("pieces", [1, 4])
def test_pieces_give_the_gradient_of_the_full_batch(strategy, pieces, scaled):
    got = _gradient(strategy, scaled, pieces=pieces, jit_compile=False)
    np.testing.assert_allclose(got, _by_hand(), rtol=1e-5, atol=1e-6)


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("name", ["off", "one_device", "mirrored2"])
def test_xla_gives_the_gradient_of_the_plain_step(name, pieces, scaled):
    strategy = make_strategy(name)
    plain = _gradient(strategy, scaled)
    np.testing.assert_allclose(plain, _by_hand(), rtol=1e-5, atol=1e-6)
    compiled = _gradient(strategy, scaled, pieces=pieces, jit_compile=True)
    np.testing.assert_allclose(compiled, plain, rtol=1e-6, atol=1e-6)


def test_gradient_tap_acts_as_the_optimizer_but_applies_nothing():
    variable = tf.Variable([1.0, 2.0])
    inner = tf_keras.optimizers.SGD(1.0)
    tap = GradientRecorder(tf_keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=8.0))
    assert isinstance(tap, tf_keras.mixed_precision.LossScaleOptimizer)
    assert tap.get_scaled_loss(tf.constant(1.0)).numpy() == 8.0
    tap.apply_gradients([(tf.constant([5.0, 5.0]), variable), (None, variable)])
    assert len(tap.recorded) == 1
    np.testing.assert_array_equal(variable.numpy(), [1.0, 2.0])
    assert not isinstance(GradientRecorder(inner), tf_keras.mixed_precision.LossScaleOptimizer)


@pytest.mark.sample(1)
@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_each_piece_draws_different_random_numbers(jit_compile, pieces):
    """The loss is a draw, so the mean over the pieces shows whether their draws differ."""
    variable = tf.Variable(1.0)

    def train_step(inputs, to):
        with tf.GradientTape() as tape:
            loss = variable * tf.random.uniform([])
        to.apply_gradients([(tape.gradient(loss, variable), variable)])
        return {"loss": loss}

    optimizer = tf_keras.optimizers.SGD(0.0)
    optimizer.build([variable])

    def losses(pieces):
        run = split_step(train_step, optimizer, pieces=pieces, jit_compile=jit_compile, loss="loss")

        @tf.function
        def keyed(step):
            with keyed_draws_scope(7, step, 0):
                return run(tf.zeros([4, 1]))["loss"]

        return [keyed(tf.constant(step)).numpy() for step in (3, 4, 3)]

    step_losses = losses(pieces)
    assert step_losses[0] == step_losses[2] != step_losses[1]
    # With equal draws, the mean would not depend on the number of pieces.
    assert step_losses[0] != losses(2 * pieces)[0]


def test_a_piece_begins_after_the_previous_one_has_ended():
    """Otherwise, the tensors of two pieces would be in memory at the same time."""
    running, most = [0], [0]  # the pieces that run now, and how many did each time
    variable = tf.Variable(1.0)

    def loss_of(rows):
        running[0] += 1
        most.append(running[0])
        time.sleep(0.1)  # Other threads can begin a piece.
        running[0] -= 1
        return np.mean(rows)

    def train_step(rows, to):
        # A stateless op, because TensorFlow runs stateful ones in their order in any case.
        loss = tf.numpy_function(loss_of, [rows], tf.float32, stateful=False)
        loss.set_shape([])
        to.apply_gradients([(loss, variable)])
        return {"loss": loss}

    optimizer = tf_keras.optimizers.SGD(1.0)
    optimizer.build([variable])
    step = split_step(train_step, optimizer, pieces=4, jit_compile=False, loss="loss")
    tf.function(step, autograph=False)(tf.range(8.0))
    assert max(most) == 1
    assert variable.numpy() == 1 - 3.5


@pytest.mark.parametrize("third", [{"id": [1.0]}, [1], [[1.0]]])
def test_third_part_of_a_batch_that_cannot_be_weights_is_an_error(third):
    task = toy_task(toy_config())
    batch = (*task.arrays(), third if isinstance(third, dict) else tf.constant(third))
    with raises("wrong-type", "task"):
        task.train_step(batch, task.build_model(), tf_keras.optimizers.SGD())
