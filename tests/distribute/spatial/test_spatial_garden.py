"""The networks of Model Garden, whose blocks are layers made of layers."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras

from orbit_runner.distribute.spatial import PartitionError, partition_model

# Of a small network in float32 one number on the other side of 0 shows in the gradients.
FLOAT64 = tf_keras.mixed_precision.Policy("float64")
SPECS = tf_keras.layers.InputSpec(shape=[None, 64, 64, 3])


def _classifier(depth, **options):
    from official.vision.modeling import classification_model
    from official.vision.modeling.backbones import resnet

    tf_keras.utils.set_random_seed(5)
    tf_keras.mixed_precision.set_global_policy(FLOAT64)
    backbone = resnet.ResNet(depth, SPECS, depth_multiplier=0.125, **options)
    return classification_model.ClassificationModel(backbone, 10, SPECS)


def _images():
    return np.random.default_rng(1).normal(size=(4, 64, 64, 3)).astype("float32")


@pytest.mark.slow
def test_a_residual_network_in_parts_is_the_network(steps, close):
    whole, parts = steps(_classifier(18), [1, 1, 2, 1], _images())
    close(whole, parts, outputs=1e-5, gradients=1e-4, state=1e-5)


@pytest.mark.slow
def test_a_bottleneck_in_parts_is_the_bottleneck(steps, close):
    from official.vision.modeling.layers.nn_blocks import BottleneckBlock

    tf_keras.mixed_precision.set_global_policy(FLOAT64)
    inputs = tf_keras.Input((9, 9, 3), dtype="float64")
    model = tf_keras.Model(inputs, BottleneckBlock(4, 2, use_projection=True)(inputs))
    images = np.random.default_rng(1).normal(size=(4, 9, 9, 3))
    whole, parts = steps(model, [1, 2, 2, 1], images)
    close(whole, parts, outputs=1e-10, gradients=1e-10, state=1e-10)


@pytest.mark.slow
def test_a_frozen_backbone_stays_as_it_is(steps, close):
    model = _classifier(18)
    model.backbone.trainable = False
    whole, parts = steps(model, [1, 1, 2, 1], _images())
    close(whole, parts, outputs=1e-5, gradients=1e-4, state=0)
    assert len(parts.gradients) == 1 + 2  # The input's, and the classifier's own.


def test_what_has_no_rule_within_a_block_is_named():
    model = _classifier(18, init_stochastic_depth_rate=0.2)
    found = r"layer res_net\w*/residual_block\w*/stochastic_depth \(StochasticDepth\) is of a class"
    with pytest.raises(PartitionError, match=found):
        partition_model(model, [1, 2, 1, 1], [["CPU:0", "CPU:1"]])


@pytest.mark.slow
def test_the_model_passes_for_a_garden_model():
    model = _classifier(18)
    parts = partition_model(model, [1, 2, 1, 1], [["CPU:0", "CPU:1"]])
    assert parts.backbone is model.backbone
    assert parts.checkpoint_items.keys() == {"backbone"}
