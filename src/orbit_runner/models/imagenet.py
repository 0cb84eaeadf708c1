"""Networks for images of ImageNet's size, from Model Garden and from `tf_keras.applications`."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from orbit_runner.models.catalog import APPLICATIONS, BACKBONE, patch_size
from orbit_runner.models.configs import (
    ApplicationConfig,
    EfficientNetConfig,
    ResNetConfig,
    VitConfig,
)
from orbit_runner.models.layers import ImageInput, classifier
from orbit_runner.tf_internals import set_block_drop_rates

# Goyal et al. 2017, section 5.1.
_RESNET_HEAD = {"class_name": "RandomNormal", "config": {"stddev": 0.01}}
# The initializers of the authors' code of EfficientNet. The variance is 2 / fan_out in convolutions
# (fan_out of a single channel in depthwise ones), and 1 / (3 · classes) in the classifier.
_EFFICIENTNET_CONVOLUTION = {
    "class_name": "VarianceScaling",
    "config": {"scale": 2.0, "mode": "fan_out", "distribution": "untruncated_normal"},
}
_EFFICIENTNET_HEAD = {
    "class_name": "VarianceScaling",
    "config": {"scale": 1 / 3, "mode": "fan_out", "distribution": "uniform"},
}


def resnet(config: ResNetConfig, images: ImageInput) -> tf_keras.Model:
    """Returns a residual network of four stages, which is known as version 1.5.

    It is that of He et al. 2015 ("Deep residual learning"), table 1, with the stride in the 3 x 3
    convolution of a bottleneck. Kernels are initialized as in He et al. 2015b ("Delving deep into
    rectifiers"). `depth` is 18, 34, 50, 101, 152 or 200.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes].
    """
    from official.vision.modeling.backbones.resnet import ResNet

    inputs, x = images.normalized()
    backbone = ResNet(
        config.depth,
        tf_keras.layers.InputSpec(shape=x.shape),
        use_sync_bn=config.use_sync_bn,
        norm_momentum=config.batch_norm_momentum,
        norm_epsilon=config.batch_norm_epsilon,
        kernel_initializer="he_normal",
        name="backbone",
    )
    return classifier(
        inputs,
        backbone(x)["5"],
        num_classes=images.num_classes,
        dropout_rate=config.dropout_rate,
        kernel_initializer=_RESNET_HEAD,
        name=f"resnet{config.depth}_v1_5",
        depth=config.depth,
    )


def vit(config: VitConfig, images: ImageInput) -> tf_keras.Model:
    """Returns a vision transformer (Dosovitskiy et al. 2020).

    It has an encoder of patches, and a classifier whose kernel is initialized to zero.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes]. Height and width must be multiples of the patch size. There is no layer between
    the encoder and the classifier (`representation_size` in the paper).

    `model_name` is a name in `VIT_NAMES`. `pooler` selects the input of the classifier: `token`,
    the encoding of a token before the patches, or `gap`, the mean of the patches' encodings.
    `dropout_rate` is for the embedded patches and the outputs of the MLPs; `attention_dropout_rate`
    is for the attention weights and the outputs of attention. In training, the last block is
    dropped with probability `init_stochastic_depth_rate`, and earlier blocks with linearly smaller
    ones. If `original_init` is True, kernels are initialized as in the paper (Glorot uniform),
    otherwise as in DeiT (Touvron et al. 2021; normal with a standard deviation of 0.02).
    """
    from official.vision.modeling.backbones.vit import VIT_SPECS, VisionTransformer

    inputs, x = images.normalized()
    spec = VIT_SPECS[config.model_name]
    backbone = VisionTransformer(
        input_specs=tf_keras.layers.InputSpec(shape=x.shape),
        patch_size=patch_size(config.model_name),
        hidden_size=spec["hidden_size"],
        pooler=config.pooler,
        dropout_rate=config.dropout_rate,
        attention_dropout_rate=config.attention_dropout_rate,
        init_stochastic_depth_rate=config.init_stochastic_depth_rate,
        original_init=config.original_init,
        **spec["transformer"],
    )
    return classifier(
        inputs,
        backbone(x)["pre_logits"],
        num_classes=images.num_classes,
        dropout_rate=0.0,
        kernel_initializer="zeros",
        name=config.model_name.replace("-", "_"),
    )


def efficientnet(config: EfficientNetConfig, images: ImageInput) -> tf_keras.Model:
    """Returns EfficientNet (Tan and Le 2019).

    It has inverted bottlenecks with squeeze-and-excitation and swish, and a classifier.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes]. `model_id` is `b0` to `b7`; the paper trains them on images of 224, 240, 260, 300,
    380, 456, 528 and 600 pixels, with a dropout rate from 0.2 to 0.5.

    In training, each block is dropped with a probability that grows linearly with its position,
    from 0 at the first block to `stochastic_depth_drop_rate`, which a block after the last
    would have (Huang et al. 2016, equation 4). `se_ratio` is the ratio of the squeezed channels to
    the input channels of a block; 0 disables squeeze-and-excitation.
    """
    from official.vision.modeling.backbones.efficientnet import EfficientNet

    inputs, x = images.normalized()
    backbone = EfficientNet(
        config.model_id,
        tf_keras.layers.InputSpec(shape=x.shape),
        se_ratio=config.se_ratio,
        stochastic_depth_drop_rate=config.stochastic_depth_drop_rate,
        kernel_initializer=_EFFICIENTNET_CONVOLUTION,
        activation="swish",
        se_inner_activation="swish",
        use_sync_bn=config.use_sync_bn,
        norm_momentum=config.batch_norm_momentum,
        norm_epsilon=config.batch_norm_epsilon,
        name="backbone",
    )
    # Model Garden uses one rate for all blocks.
    set_block_drop_rates(backbone.layers, config.stochastic_depth_drop_rate)
    features = backbone(x)
    return classifier(
        inputs,
        features[max(features)],
        num_classes=images.num_classes,
        dropout_rate=config.dropout_rate,
        kernel_initializer=_EFFICIENTNET_HEAD,
        name=f"efficientnet_{config.model_id}",
    )


def keras_application(config: ApplicationConfig, images: ImageInput) -> tf_keras.Model:
    """Returns an application without its classifier, as the layer `backbone`, and a new one.

    The model maps raw pixels [batch, height, width, 3] to float32 logits [batch, num_classes].
    With the mean and the standard deviation of `APPLICATIONS`, the backbone gets what
    `preprocess_input` of the application returns.
    """
    inputs, x = images.normalized()
    if APPLICATIONS[config.application].pixels.is_bgr:
        x = tf.reverse(x, axis=[-1])
    network = getattr(tf_keras.applications, config.application)(
        include_top=False, weights=None, input_shape=tuple(images.shape)
    )
    backbone = tf_keras.Model(network.inputs, network.outputs, name=BACKBONE)
    return classifier(
        inputs,
        backbone(x),
        num_classes=images.num_classes,
        dropout_rate=config.dropout_rate,
        kernel_initializer="glorot_uniform",
        name=config.application.lower(),
    )
