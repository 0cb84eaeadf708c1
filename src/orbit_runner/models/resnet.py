"""Residual networks for images of ImageNet's size, in three versions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.models.heads import classifier
from orbit_runner.models.normalize import normalized_input
from orbit_runner.models.resnet_imagenet import resnet_features
from orbit_runner.models.resnet_imagenet_blocks import Norms
from orbit_runner.tf_internals import last_norms

# Goyal et al. 2017, section 5.1.
_HEAD = {"class_name": "RandomNormal", "config": {"stddev": 0.01}}


def resnet(
    *,
    input_shape: Sequence[int],
    num_classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    input_dtype: str = "uint8",
    depth: int = 50,
    version: float = 1.5,
    zero_init_last_bn: bool = False,
    dropout_rate: float = 0.0,
    batch_norm_momentum: float = 0.9,
    batch_norm_epsilon: float = 1e-5,
    use_sync_bn: bool = False,
) -> tf_keras.Model:
    """Returns a residual network of four stages.

    Version 1 is He et al. 2015 ("Deep residual learning"), table 1, with the stride in the first
    convolution of a bottleneck. Version 1.5 is Model Garden's, with the stride in the 3 x 3
    convolution. Version 2 is He et al. 2016 ("Identity mappings"), with pre-activation. All kernels
    are initialized as in He et al. 2015b ("Delving deep into rectifiers"). `depth` is 18, 34, 50,
    101, 152 or 200.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes]. `mean` and `std` are those of `Normalize`. If `zero_init_last_bn` is True, the
    scale of the last batch normalization of each block is initialized to 0, so that a block starts
    as its shortcut (Goyal et al. 2017, section 5.1). Raises `ValueError` if version 2 is combined
    with it, because its blocks do not end in batch normalization.
    """
    if version == 2 and zero_init_last_bn:
        raise ValueError("blocks of version 2 do not end in batch normalization.")
    norm: dict[str, Any] = {
        "momentum": batch_norm_momentum,
        "epsilon": batch_norm_epsilon,
        "synchronized": use_sync_bn,
    }
    inputs, x = normalized_input(input_shape, input_dtype, mean, std)
    if version == 1.5:
        x = _model_garden_features(x, depth, norm, zero_init_last_bn)
    else:
        x = resnet_features(x, depth, int(version), _make_norms(norm, zero_init_last_bn))
    return classifier(
        inputs,
        x,
        num_classes=num_classes,
        dropout_rate=dropout_rate,
        kernel_initializer=_HEAD,
        name=f"resnet{depth}_v{version:g}".replace(".", "_"),
        depth=depth,
    )


def _make_norms(options: dict[str, Any], zero_init: bool) -> Norms:
    def norm(x: tf.Tensor, name: str, gamma: str = "ones") -> tf.Tensor:
        return tf_keras.layers.BatchNormalization(name=name, gamma_initializer=gamma, **options)(x)

    return Norms(norm, functools.partial(norm, gamma="zeros") if zero_init else norm)


def _model_garden_features(
    x: tf.Tensor, depth: int, norm: dict[str, Any], zero_init: bool
) -> tf.Tensor:
    from official.vision.modeling.backbones.resnet import ResNet

    # Layer names must not depend on what was built before in this process.
    tf_keras.backend.reset_uids()
    backbone = ResNet(
        depth,
        tf_keras.layers.InputSpec(shape=x.shape),
        use_sync_bn=norm["synchronized"],
        norm_momentum=norm["momentum"],
        norm_epsilon=norm["epsilon"],
        kernel_initializer="he_normal",
        name="backbone",
    )
    if zero_init:
        _zero_last_scales(backbone)
    return backbone(x)["5"]


def _zero_last_scales(backbone: tf_keras.Model) -> None:
    """Sets the last scale of each block to 0, for which Model Garden has no setting."""
    for norm in last_norms(backbone.layers):
        norm.gamma.assign(tf.zeros_like(norm.gamma))
