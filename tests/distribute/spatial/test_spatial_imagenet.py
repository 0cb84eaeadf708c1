"""Which networks for large images can be partitioned."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras

from orbit_runner.distribute.spatial import PartitionError, partition_model
from orbit_runner.models.efficientnet import efficientnet
from orbit_runner.models.resnet import resnet
from orbit_runner.models.vit import vit

_SHAPE = {"input_shape": (64, 64, 3), "num_classes": 10}


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 1.5, 2])
def test_partitioned_residual_networks_of_all_versions_match_the_originals(version, steps, close):
    # In float32 one number that rounds to the other side of 0 changes the gradients noticeably.
    tf_keras.mixed_precision.set_global_policy(tf_keras.mixed_precision.Policy("float64"))
    tf_keras.utils.set_random_seed(5)
    model = resnet(**_SHAPE, depth=18, version=version)
    images = np.random.default_rng(1).integers(0, 256, (4, 64, 64, 3), "uint8")
    whole, parts = steps(model, [1, 2, 1, 1], images)
    close(whole, parts, outputs=1e-5, gradients=1e-4, state=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("builder", "layer"),
    [(vit, "TokenLayer|TFOpLambda"), (efficientnet, "InvertedBottleneckBlock")],
)
def test_networks_with_layers_without_a_rule_are_rejected(builder, layer):
    options = {"model_name": "vit-ti16"} if builder is vit else {}
    with pytest.raises(PartitionError, match=layer):
        partition_model(builder(**_SHAPE, **options), [1, 2, 1, 1], [["CPU:0", "CPU:1"]])
