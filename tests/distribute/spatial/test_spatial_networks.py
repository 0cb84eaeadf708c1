"""Partitioned networks against the same networks on one device."""

from __future__ import annotations

import pytest
import tf_keras

from orbit_runner.models.resnet_blocks import basic_block, convolution, norm_relu
from tests.distribute.spatial.networks import random_pixels, small_resnet

pytestmark = pytest.mark.usefixtures("same_weights")

layers = tf_keras.layers
CLOSE = {"outputs": 1e-5, "gradients": 1e-4, "state": 1e-5}


def _norm(x, name):
    return layers.BatchNormalization(momentum=0.9, name=name)(x)


def _imagenet(size):
    """A 7 x 7 stem of stride 2, 3 x 3 max-pooling of stride 2, two stages."""
    inputs = tf_keras.Input((size, size, 3), dtype="uint8")
    x = layers.Rescaling(1 / 60.0, -2.0)(inputs)
    x = layers.ZeroPadding2D(3)(x)
    x = layers.Conv2D(16, 7, 2, use_bias=False, name="stem")(x)
    x = layers.MaxPool2D(3, 2, padding="same")(norm_relu(x, "stem", _norm))
    x = basic_block(x, 16, 1, "one", _norm)
    x = basic_block(x, 32, 2, "two", _norm)
    x = layers.GlobalAveragePooling2D()(norm_relu(convolution(x, 32, 1, "last"), "last", _norm))
    return tf_keras.Model(inputs, layers.Dense(10, dtype="float32")(x))


NETWORKS = {
    "resnet8_v1": lambda: (small_resnet(8, 1, 32), 32),
    "resnet11_v2": lambda: (small_resnet(11, 2, 32), 32),
    "imagenet_stem": lambda: (_imagenet(46), 46),
}


@pytest.mark.slow
@pytest.mark.parametrize("dims", [[1, 1, 2, 1], [1, 2, 2, 1]], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_partitioned_network_matches_the_original(name, dims, steps, close):
    model, size = NETWORKS[name]()
    close(*steps(model, dims, random_pixels(size)), **CLOSE)


@pytest.mark.slow
def test_partitioned_network_matches_the_original_in_evaluation(steps, close):
    model, size = NETWORKS["resnet8_v1"]()
    close(*steps(model, [1, 4, 1, 1], random_pixels(size), training=False), **CLOSE)
