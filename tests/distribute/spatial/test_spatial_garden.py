"""The networks of Model Garden, whose blocks are nested layers."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras

from orbit_runner.distribute.spatial import PartitionError, partition_model

# In float32 one number that rounds to the other side of 0 changes the gradients noticeably.
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
def test_partitioned_residual_network_matches_the_original(steps, close):
    whole, parts = steps(_classifier(18), [1, 1, 2, 1], _images())
    close(whole, parts, outputs=1e-5, gradients=1e-4, state=1e-5)


@pytest.mark.slow
def test_partitioned_bottleneck_block_matches_the_original(steps, close):
    from official.vision.modeling.layers.nn_blocks import BottleneckBlock

    tf_keras.mixed_precision.set_global_policy(FLOAT64)
    inputs = tf_keras.Input((9, 9, 3), dtype="float64")
    model = tf_keras.Model(inputs, BottleneckBlock(4, 2, use_projection=True)(inputs))
    images = np.random.default_rng(1).normal(size=(4, 9, 9, 3))
    whole, parts = steps(model, [1, 2, 2, 1], images)
    close(whole, parts, outputs=1e-10, gradients=1e-10, state=1e-10)


@pytest.mark.slow
def test_frozen_backbone_is_unchanged_when_partitioned(steps, close):
    model = _classifier(18)
    model.backbone.trainable = False
    whole, parts = steps(model, [1, 1, 2, 1], _images())
    close(whole, parts, outputs=1e-5, gradients=1e-4, state=0)
    assert len(parts.gradients) == 1 + 2  # Those of the input and of the classifier.


@pytest.mark.slow
def test_error_names_a_layer_without_a_rule_inside_a_block():
    model = _classifier(18, init_stochastic_depth_rate=0.2)
    found = r"layer res_net\w*/residual_block\w*/stochastic_depth \(StochasticDepth\) "
    with pytest.raises(PartitionError, match=found + "has no partitioning rule"):
        partition_model(model, [1, 2, 1, 1], [["CPU:0", "CPU:1"]])


@pytest.mark.slow
def test_partitioned_model_has_the_attributes_of_a_model_garden_model():
    model = _classifier(18)
    parts = partition_model(model, [1, 2, 1, 1], [["CPU:0", "CPU:1"]])
    assert parts.backbone is model.backbone
    assert parts.checkpoint_items.keys() == {"backbone"}
