"""Models that cannot be partitioned are rejected before anything runs."""

from __future__ import annotations

import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial import (
    RULES,
    PartitionError,
    Rule,
    partition_model,
    pointwise,
    register,
)
from orbit_runner.models.resnet_cifar import resnet_cifar

layers = tf_keras.layers
HALVES = [["CPU:0", "CPU:1"]]


def _model(*stack, size=(8, 8)):
    inputs = x = tf_keras.Input((*size, 3))
    for layer in stack:
        x = layer(x)
    return tf_keras.Model(inputs, x, name="net")


@pytest.mark.parametrize(
    ("dims", "devices", "message"),
    [
        ([1, 2], HALVES, r"got \[1, 2\]; allowed: four positive numbers"),
        ([1, 2, 0, 1], HALVES, "four positive numbers"),
        ([1, 1, 1, 2], HALVES, "2 parts along the channels; CPUs and GPUs support only 1"),
        (
            [1, 2, 2, 1],
            HALVES,
            r"\[1, 2, 2, 1\] requires 4 devices per replica, one for each part; a replica has 2",
        ),
        ([1, 2, 1, 1], [], "a replica has none"),
    ],
)
def test_partition_dims_that_do_not_fit_are_rejected(dims, devices, message):
    with pytest.raises(PartitionError, match=message):
        partition_model(_model(layers.ReLU()), dims, devices)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            layers.Conv2DTranspose(4, 3, name="up"),
            r"layer up \(Conv2DTranspose\) has no partitioning rule",
        ),
        (layers.Conv2D(6, 3, groups=3, name="conv"), r"layer conv \(Conv2D\) has groups > 1"),
        (layers.BatchNormalization(axis=1, name="bn"), r"layer bn .* normalizes axis \[1\]"),
        (layers.BatchNormalization(renorm=True, name="bn"), "layer bn .* uses renorm"),
        (layers.Softmax(axis=1, name="soft"), "layer soft .* is applied along axis 1"),
        (
            layers.ReLU(activity_regularizer=tf_keras.regularizers.L2(0.1), name="relu"),
            "layer relu .* has an activity regularizer",
        ),
        (layers.MaxPool2D(8, name="pool"), "layer pool: 1 pixel high, but split into 2 parts"),
        (
            layers.Dropout(0.1, noise_shape=(None, 1, 1, 1), name="drop"),
            "layer drop .* has a noise_shape",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_layers_that_cannot_be_partitioned_are_rejected(layer, message):
    with pytest.raises(PartitionError, match=message):
        partition_model(_model(layer), [1, 2, 1, 1], HALVES)


def test_error_lists_all_layers_that_cannot_be_partitioned():
    up = layers.Conv2DTranspose(4, 3, name="up")
    model = _model(up, layers.Conv2D(6, 3, groups=2, name="conv"))
    with pytest.raises(PartitionError) as error:
        partition_model(model, [1, 2, 1, 1], HALVES)
    lines = str(error.value).splitlines()
    assert lines[0] == "net cannot be partitioned:"
    assert [line.split()[1] for line in lines[1:]] == ["up", "conv"]


def test_functions_that_mix_pixels_are_rejected():
    inputs = tf_keras.Input((8, 8, 3))
    model = tf_keras.Model(inputs, tf.reverse(inputs, [1]))
    found = "is reverse, which is not known to process each pixel"
    with pytest.raises(PartitionError, match=found):
        partition_model(model, [1, 2, 1, 1], HALVES)


def test_error_names_a_layer_inside_a_nested_model():
    model = _model(_model(layers.UpSampling2D(name="up")))
    with pytest.raises(PartitionError, match="layer net/up "):
        partition_model(model, [1, 2, 1, 1], HALVES)


def test_more_parts_than_pixels_are_rejected():
    model = resnet_cifar(input_shape=(8, 8, 3), num_classes=10, depth=8)
    found = "layer stage3_block1_conv1: 2 pixels wide, but split into 4 pa"
    with pytest.raises(PartitionError, match=found):
        partition_model(model, [1, 1, 4, 1], [[f"CPU:{index}" for index in range(4)]])


def test_inputs_that_are_not_images_are_rejected():
    inputs = tf_keras.Input((8,))
    model = tf_keras.Model(inputs, layers.Dense(3)(inputs))
    with pytest.raises(PartitionError, match=r"\(None, 8\)\) is a batch of images"):
        partition_model(model, [1, 2, 1, 1], HALVES)


def test_subclassed_models_are_rejected():
    class Subclassed(tf_keras.Model):
        pass

    with pytest.raises(PartitionError, match="only functional models"):
        partition_model(Subclassed(), [1, 2, 1, 1], HALVES)


def test_images_of_unknown_height_are_rejected():
    inputs = tf_keras.Input((None, None, 3))
    parts = partition_model(tf_keras.Model(inputs, layers.ReLU()(inputs)), [1, 2, 1, 1], HALVES)

    @tf.function(input_signature=[tf.TensorSpec([2, None, 8, 3])])
    def run(images):
        return parts(images)

    with pytest.raises(Exception, match=r"\(2, None, 8, 3\) cannot be split into 2 x 1 parts"):
        run.get_concrete_function()


def test_custom_layer_can_be_partitioned_after_registering_a_rule(steps, close):
    class Halve(layers.Layer):
        def call(self, x):
            # AutoGraph must convert this, as in Keras.
            if tf.reduce_sum(x) > tf.reduce_sum(x) + 1.0:
                x = -x
            return x / 2

    model = _model(layers.Conv2D(2, 3), Halve(name="halve"))
    with pytest.raises(PartitionError, match=r"layer halve \(Halve\) has no partitioning rule"):
        partition_model(model, [1, 2, 1, 1], HALVES)
    register(Halve)(Rule(pointwise))
    try:
        images = tf.random.normal([2, 8, 8, 3]).numpy()
        close(*steps(model, [1, 2, 1, 1], images), outputs=1e-6, gradients=1e-5, state=0)
    finally:
        del RULES[Halve]
