"""EfficientNet (Tan and Le 2019), from Model Garden's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tf_keras

from orbit_runner.models.heads import classifier
from orbit_runner.models.normalize import normalized_input

# What the authors' code starts kernels from: variance 2 / fan_out in convolutions, of a depthwise
# one that of a single channel; 1 / (3 · classes) in the classifier.
_CONVOLUTION = {
    "class_name": "VarianceScaling",
    "config": {"scale": 2.0, "mode": "fan_out", "distribution": "untruncated_normal"},
}
_HEAD = {
    "class_name": "VarianceScaling",
    "config": {"scale": 1 / 3, "mode": "fan_out", "distribution": "uniform"},
}


def efficientnet(
    *,
    input_shape: Sequence[int],
    num_classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    input_dtype: str = "uint8",
    model_id: str = "b0",
    dropout_rate: float = 0.2,
    stochastic_depth_drop_rate: float = 0.2,
    se_ratio: float = 0.25,
    batch_norm_momentum: float = 0.99,
    batch_norm_epsilon: float = 1e-3,
    use_sync_bn: bool = False,
) -> tf_keras.Model:
    """Builds inverted bottlenecks with squeeze and excitation, all of them with swish.

    Args:
        input_shape: `(height, width, channels)` of one image.
        num_classes: The number of logits.
        mean: What to subtract from each channel, in raw pixel units; None for nothing.
        std: What to divide each channel by, in raw pixel units; None for nothing.
        input_dtype: The dtype of the raw pixels.
        model_id: `b0` to `b7`; the paper trains them on images of 224, 240, 260, 300, 380, 456, 528
            and 600 pixels, with a dropout from 0.2 to 0.5.
        dropout_rate: The share of the pooled features left out in training.
        stochastic_depth_drop_rate: How often a block behind the last would add nothing, in
            training; the others do so the less often the earlier they are, linearly (Huang et al.
            2016, equation 4).
        se_ratio: Channels of the squeezed features as a share of a block's input; 0 for no squeeze
            and excitation.
        batch_norm_momentum: The share of the old moving average kept each step.
        batch_norm_epsilon: What is added to the variance.
        use_sync_bn: Whether mean and variance are those of all replicas' batches together.

    Returns:
        A model from `[batch, height, width, channels]` raw pixels to `[batch, num_classes]` logits
        in float32.

    Raises:
        ValueError: If `mean` or `std` do not fit the channels.
    """
    from official.vision.modeling.backbones.efficientnet import EfficientNet

    inputs, x = normalized_input(input_shape, input_dtype, mean, std)
    # Names count what was built before in this process; the names of a network must not.
    tf_keras.backend.reset_uids()
    backbone = EfficientNet(
        model_id,
        tf_keras.layers.InputSpec(shape=x.shape),
        se_ratio=se_ratio,
        stochastic_depth_drop_rate=stochastic_depth_drop_rate,
        kernel_initializer=_CONVOLUTION,
        activation="swish",
        se_inner_activation="swish",
        use_sync_bn=use_sync_bn,
        norm_momentum=batch_norm_momentum,
        norm_epsilon=batch_norm_epsilon,
        name="backbone",
    )
    _spread_drop_rates(backbone, stochastic_depth_drop_rate)
    features = backbone(x)
    return classifier(
        inputs,
        features[max(features)],
        num_classes=num_classes,
        dropout_rate=dropout_rate,
        kernel_initializer=_HEAD,
        name=f"efficientnet_{model_id}",
    )


def _spread_drop_rates(backbone: tf_keras.Model, rate: float) -> None:
    """Gives each block the rate of its place; Model Garden gives all of them the same."""
    blocks: list[Any] = [layer for layer in backbone.layers if hasattr(layer, "_stochastic_depth")]
    for index, block in enumerate(blocks):
        if block._stochastic_depth is not None:
            block._stochastic_depth._drop_rate = rate * index / len(blocks)
