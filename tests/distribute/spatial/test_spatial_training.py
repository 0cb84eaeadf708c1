"""Training of partitioned networks: sizes, precision, graphs and the placement of ops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial import partition_model
from tests.distribute.spatial.networks import random_pixels, small_resnet

pytestmark = pytest.mark.usefixtures("same_weights")


@pytest.mark.slow
def test_image_sizes_not_divisible_by_the_parts_are_supported(steps, close):
    size = 37
    # In float32 one number that rounds to the other side of 0 changes a small gradient by 1e-2.
    tf_keras.mixed_precision.set_global_policy("float64")
    close(
        *steps(small_resnet(8, 1, size), [1, 2, 2, 1], random_pixels(size)),
        outputs=1e-5,
        gradients=1e-4,
        state=1e-5,
    )


@pytest.mark.slow
def test_partitioned_training_has_the_same_losses():
    labels = tf.constant([1, 2, 3, 4])
    pixels = tf.constant(random_pixels(16))

    def losses(dims):
        tf_keras.utils.set_random_seed(5)
        model = small_resnet(8, 1, 16)
        called = model if dims is None else partition_model(model, dims, [_cpus(dims)])
        optimizer = tf_keras.optimizers.SGD(0.05, momentum=0.9)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                logits = called(pixels, training=True)
                loss = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                )
            variables = called.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        return [float(step()) for _ in range(4)]

    whole = losses(None)
    assert whole[-1] < 0.5 * whole[0]
    np.testing.assert_allclose(losses([1, 2, 1, 1]), whole, rtol=2e-4)


def _cpus(dims):
    return [f"CPU:{index}" for index in range(math.prod(dims))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "tolerance"), [("mixed_float16", 0.02), ("mixed_bfloat16", 0.1)]
)
def test_partitioned_network_matches_the_original_in_mixed_precision(policy, tolerance, steps):
    tf_keras.mixed_precision.set_global_policy(policy)
    whole, parts = steps(small_resnet(8, 1, 16), [1, 2, 1, 1], random_pixels(16))
    assert parts.outputs.dtype == np.float32
    np.testing.assert_allclose(parts.outputs, whole.outputs, rtol=0, atol=tolerance)
    for name, expected in whole.state.items():
        np.testing.assert_allclose(parts.state[name], expected, rtol=0, atol=tolerance)
    for name, gradient in parts.gradients.items():
        assert gradient.dtype == np.float32, name


def test_partitioned_gradients_match_the_original_in_eager_mode():
    tf_keras.utils.set_random_seed(5)
    model = small_resnet(8, 1, 16)
    parts = partition_model(model, [1, 2, 1, 1], [_cpus([1, 2, 1, 1])])
    before, found = model.get_weights(), []
    for called in (model, parts):
        model.set_weights(before)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(called(tf.constant(random_pixels(16)), training=True)[:, 0])
        found.append(tape.gradient(loss, model.trainable_variables))
    for expected, got in zip(*found, strict=True):
        bound = 1e-4 * np.max(np.abs(expected))
        np.testing.assert_allclose(got, expected, rtol=0, atol=bound)


@pytest.mark.slow
def test_forward_and_backward_ops_run_on_their_parts_device():
    model = small_resnet(8, 1, 32)
    parts = partition_model(model, [1, 2, 2, 1], [_cpus([1, 2, 2, 1])])

    @tf.function
    def step(pixels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(parts(pixels, training=True))
        return tape.gradient(loss, model.trainable_variables)

    with tf.device("CPU:0"):
        graph = step.get_concrete_function(tf.TensorSpec([5, 32, 32, 3], tf.uint8)).graph
    kinds = {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "ReluGrad", "AddN"}
    found = {kind: dict.fromkeys(_cpus([1, 2, 2, 1]), 0) for kind in kinds}
    for op in graph.get_operations():
        # Only sums of five images: those of weight gradients are placed with the weights.
        shape = op.outputs[0].shape if op.outputs else None
        if op.type in kinds and (op.type != "AddN" or (shape.rank == 4 and shape[0] == 5)):
            found[op.type][op.device[-5:]] += 1
    for kind, counts in found.items():
        assert min(counts.values()) > 0, (kind, counts)
        if kind != "AddN":
            assert len(set(counts.values())) == 1, (kind, counts)
    # The top left part sends edges to three neighbors, each of the others to at most as many.
    assert max(found["AddN"].values()) <= 2 * min(found["AddN"].values())
