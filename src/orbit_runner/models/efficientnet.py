"""EfficientNet (Tan and Le 2019), from Model Garden's blocks."""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras

from orbit_runner.models.heads import classifier
from orbit_runner.models.normalize import normalized_input
from orbit_runner.tf_internals import set_block_drop_rates

# The initializers of the authors' code. The variance is 2 / fan_out in convolutions (fan_out of a
# single channel in depthwise ones), and 1 / (3 · classes) in the classifier.
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
    """Returns inverted bottlenecks with squeeze-and-excitation and swish, and a classifier.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes]. `mean` and `std` are those of `Normalize`. `model_id` is `b0` to `b7`; the paper
    trains them on images of 224, 240, 260, 300, 380, 456, 528 and 600 pixels, with a dropout rate
    from 0.2 to 0.5.

    In training, each block is dropped with a probability that grows linearly with its position,
    from 0 at the first block to `stochastic_depth_drop_rate`, which a block after the last
    would have (Huang et al. 2016, equation 4). `se_ratio` is the ratio of the squeezed channels to
    the input channels of a block; 0 disables squeeze-and-excitation.
    """
    from official.vision.modeling.backbones.efficientnet import EfficientNet

    inputs, x = normalized_input(input_shape, input_dtype, mean, std)
    # Layer names must not depend on what was built before in this process.
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
    # Model Garden uses one rate for all blocks.
    set_block_drop_rates(backbone.layers, stochastic_depth_drop_rate)
    features = backbone(x)
    return classifier(
        inputs,
        features[max(features)],
        num_classes=num_classes,
        dropout_rate=dropout_rate,
        kernel_initializer=_HEAD,
        name=f"efficientnet_{model_id}",
    )
