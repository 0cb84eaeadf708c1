"""Partitioned models under strategies, with tasks, and with random draws."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.distribute.spatial import partition_model
from orbit_runner.models.normalize import normalized_input
from orbit_runner.models.resnet_blocks import basic_block
from orbit_runner.tasks.base import Task

layers = tf_keras.layers
PIXELS = np.random.default_rng(1).integers(0, 256, (4, 16, 16, 3), "uint8")
LABELS = np.array([1, 2, 3, 4], "int32")


class Classify(Task):
    def build_inputs(self, params, input_context=None):
        raise NotImplementedError

    def example_losses(self, labels, model_outputs):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model_outputs)


def _norm(x, name):
    return layers.BatchNormalization(name=name)(x)


def _model(dropout_rate=0.0):
    tf_keras.utils.set_random_seed(5)
    inputs, x = normalized_input((16, 16, 3), "uint8", [120.0], [60.0])
    x = basic_block(x, 8, 2, "block", _norm)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(10)(layers.Dropout(dropout_rate)(x))
    model = tf_keras.Model(inputs, x)
    kernel = model.trainable_variables[0]
    model.add_loss(lambda: 0.01 * tf.nn.l2_loss(kernel))
    return model


@functools.cache
def _mirrored():
    # One strategy for all tests, and without collective ops: two strategies that use collective
    # ops cannot follow each other in one process.
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:2"], reduction)


def _trained(strategy, groups, steps=3, **options):
    """Trains with a task's own step; returns losses, metrics and all variables."""
    with strategy.scope():
        model = _model(**options)
        called = partition_model(model, [1, 2, 1, 1], groups) if groups else model
        optimizer = tf_keras.optimizers.SGD(0.05, momentum=0.9)
        accuracy = tf_keras.metrics.SparseCategoricalAccuracy("accuracy")
        task, step_number = Classify(None), tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step(batch):
        def replica(batch):
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            with keyed_draws_scope(7, step_number, index):
                logs = task.train_step(batch, called, optimizer, [accuracy])
            return logs[task.loss]

        losses = strategy.run(replica, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    data = tf.data.Dataset.from_tensors((PIXELS, LABELS)).repeat().unbatch().batch(4)
    batches = iter(strategy.experimental_distribute_dataset(data))
    losses = [float(step(next(batches))) for _ in range(steps)]
    return losses, float(accuracy.result()), model.get_weights()


def _same(whole, parts):
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-4)
    assert parts[1] == whole[1]
    for expected, got in zip(whole[2], parts[2], strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_task_trains_the_same_on_one_device_and_on_two():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    _same(_trained(strategy, None), _trained(strategy, [["CPU:0", "CPU:1"]]))


@pytest.mark.slow
def test_partitioned_mirrored_training_matches_unpartitioned_training():
    strategy = _mirrored()
    _same(_trained(strategy, None), _trained(strategy, [["CPU:0", "CPU:1"], ["CPU:2", "CPU:3"]]))


def test_partitioned_mirrored_replicas_run_on_their_own_devices():
    strategy, groups = _mirrored(), [["CPU:0", "CPU:1"], ["CPU:2", "CPU:3"]]
    with strategy.scope():
        called = partition_model(_model(), [1, 2, 1, 1], groups)

    @tf.function
    def run():
        return strategy.run(lambda: called(tf.constant(PIXELS), training=True))

    operations = run.get_concrete_function().graph.get_operations()
    devices = [op.device[-5:] for op in operations if op.type == "Conv2D"]
    assert sorted(devices) == sorted(["CPU:0", "CPU:1", "CPU:2", "CPU:3"] * (len(devices) // 4))


@pytest.mark.slow
def test_synchronized_batch_norm_shares_moments_across_mirrored_replicas():
    strategy = _mirrored()

    def run(groups):
        with strategy.scope():
            tf_keras.utils.set_random_seed(5)
            inputs = tf_keras.Input((16, 16, 3), dtype="uint8")
            x = layers.Conv2D(4, 3)(layers.Rescaling(1 / 60.0, -2.0)(inputs))
            norm = layers.BatchNormalization(momentum=0.5, synchronized=True)
            x = norm(x)
            x = layers.GlobalAveragePooling2D()(x * tf.nn.relu(x))
            model = tf_keras.Model(inputs, x)
            called = partition_model(model, [1, 2, 1, 1], groups) if groups else model

        @tf.function
        def step(pixels):
            def replica(pixels):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(called(pixels, training=True)[0])
                return loss, tape.gradient(loss, model.trainable_variables)

            return strategy.run(replica, args=(pixels,))

        data = tf.data.Dataset.from_tensor_slices(PIXELS).batch(4)
        outputs = step(next(iter(strategy.experimental_distribute_dataset(data))))
        found = tf.nest.map_structure(strategy.experimental_local_results, outputs)
        return [value.numpy() for value in tf.nest.flatten(found)], model.get_weights()

    whole, parts = run(None), run([["CPU:0", "CPU:1"], ["CPU:2", "CPU:3"]])
    for expected, got in zip([*whole[0], *whole[1]], [*parts[0], *parts[1]], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_dropout_after_pooling_is_the_same_when_partitioned():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    _same(
        _trained(strategy, None, dropout_rate=0.5),
        _trained(strategy, [["CPU:0", "CPU:1"]], dropout_rate=0.5),
    )


def _drawn(layer, dims, step):
    inputs = tf_keras.Input((8, 8, 6))
    x = layer(inputs)
    model = tf_keras.Model(inputs, [x, layers.Dropout(0.5)(layers.Flatten()(x))])
    called = partition_model(model, dims, [["CPU:0", "CPU:1"]]) if dims else model

    @tf.function
    def run(step):
        with keyed_draws_scope(7, step, 0):
            return called(tf.ones([4, 8, 8, 6]), training=True)

    return [output.numpy() for output in run(tf.constant(step, tf.int64))]


def test_channel_dropout_is_the_same_when_partitioned():
    for dims in ([1, 2, 1, 1], [2, 1, 1, 1]):
        for expected, got in zip(
            _drawn(layers.SpatialDropout2D(0.5), None, 3),
            _drawn(layers.SpatialDropout2D(0.5), dims, 3),
            strict=True,
        ):
            np.testing.assert_array_equal(got, expected)


def test_pixel_dropout_depends_on_the_step_and_keeps_other_draws():
    first, again, later = (_drawn(layers.Dropout(0.5), [1, 2, 1, 1], n)[0] for n in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != later)
    assert np.any(first[:, :4] != first[:, 4:])
    assert 0.4 < np.mean(first == 0) < 0.6
    whole = _drawn(layers.Dropout(0.5), None, 3)
    parts = _drawn(layers.Dropout(0.5), [1, 2, 1, 1], 3)
    kept = (whole[0].reshape(4, -1) != 0) & (parts[0].reshape(4, -1) != 0)
    np.testing.assert_array_equal(whole[1][kept], parts[1][kept])


def test_partitioned_model_has_the_attributes_of_the_original():
    model = _model()
    parts = partition_model(model, [1, 2, 1, 1], [["CPU:0", "CPU:1"]])
    assert [v.name for v in parts.trainable_variables] == [
        v.name for v in model.trainable_variables
    ]
    assert len(parts.variables) == len(model.variables)
    assert parts.layers is not None
    assert parts.output_shape == (None, 10)
    assert parts.compiled_metrics is None
    assert parts.metrics == model.metrics
    with pytest.raises(AttributeError):
        _ = parts.nothing_of_this_name
    # Weight decay, which a task reads from the model.
    np.testing.assert_allclose(parts.losses, model.losses)


def test_original_and_partitioned_model_share_weights_and_checkpoints(tmp_path):
    model = _model()
    parts = partition_model(model, [1, 2, 1, 1], [["CPU:0", "CPU:1"]])
    parts(PIXELS, training=True)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "weights"))
    other = _model()
    tf.train.Checkpoint(model=other).read(path).assert_consumed()
    np.testing.assert_allclose(other(PIXELS), parts(PIXELS), rtol=0, atol=1e-5)
