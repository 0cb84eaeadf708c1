"""Residual networks for images of ImageNet's size, in three versions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import tensorflow as tf
import tf_keras

from orbit_runner.models.heads import classifier
from orbit_runner.models.normalize import normalized_input
from orbit_runner.models.resnet_blocks import Norm, convolution, norm_relu
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
    norm: dict[str, float | bool] = {
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


def _make_norms(options: dict[str, float | bool], zero_init: bool) -> Norms:
    def norm(x: tf.Tensor, name: str, gamma: str = "ones") -> tf.Tensor:
        return tf_keras.layers.BatchNormalization(name=name, gamma_initializer=gamma, **options)(x)

    return Norms(norm, functools.partial(norm, gamma="zeros") if zero_init else norm)


def _model_garden_features(
    x: tf.Tensor, depth: int, norm: dict[str, float | bool], zero_init: bool
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


# He et al. 2015, table 1; 200 layers: He et al. 2016, section 4.
_BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}
_BOTTLENECK_FROM = 50
_STEM_FILTERS = 64


def resnet_features(x: tf.Tensor, depth: int, version: int, norms: Norms) -> tf.Tensor:
    """Returns the features of a residual network before the global pooling.

    Maps [batch, height, width, channels], normalized, to [batch, ceil(height / 32), ceil(width /
    32), 512], or 2048 channels if `depth` is at least 50. `depth` is 18, 34, 50, 101, 152 or 200.
    `version` is 1 (He et al. 2015) or 2 (pre-activation, He et al. 2016).
    """
    x = norm_relu(convolution(x, _STEM_FILTERS, 7, "stem_conv", 2), "stem_conv", norms.inner)
    # After a ReLU, padding with zeros does not change the maximum.
    x = tf_keras.layers.ZeroPadding2D(1, name="stem_pool_pad")(x)
    x = tf_keras.layers.MaxPool2D(3, 2, padding="valid", name="stem_pool")(x)
    current, block = _block_functions(depth, version)
    for filters, stride, name in _block_plan(depth):
        x = current(x, filters, stride, name, norms)
        current = block
    return norm_relu(x, "final", norms.inner) if version == 2 else x


def _block_functions(depth: int, version: int) -> tuple[Block, Block]:
    """Returns the first block and the others; in version 2, the first has an activated input."""
    deep = depth >= _BOTTLENECK_FROM
    if version == 1:
        return (bottleneck_v1, bottleneck_v1) if deep else (basic_v1, basic_v1)
    block = bottleneck_v2 if deep else basic_v2
    return functools.partial(block, activated=True), block


def _block_plan(depth: int) -> list[tuple[int, int, str]]:
    """Returns channels, stride and name of each block; stages 2 to 4 start by halving the size."""
    width = 4 * _STEM_FILTERS if depth >= _BOTTLENECK_FROM else _STEM_FILTERS
    return [
        (
            width * 2 ** (stage - 1),
            2 if stage > 1 and block == 1 else 1,
            f"stage{stage}_block{block}",
        )
        for stage, blocks in enumerate(_BLOCKS[depth], start=1)
        for block in range(1, blocks + 1)
    ]


_BOTTLENECK_RATIO = 4


@dataclasses.dataclass(frozen=True)
class Norms:
    """The batch normalization layers of a network."""

    inner: Norm  # All but the last of a block.
    last: Norm  # The last of a block, before the addition.


# `block(x, filters, stride, name, norms)` maps [batch, height, width, channels] to
# [batch, ceil(height / stride), ceil(width / stride), filters].
Block = Callable[[tf.Tensor, int, int, str, Norms], tf.Tensor]


def _project(x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms) -> tf.Tensor:
    """Returns a type B shortcut: a projection if the shape changes, otherwise `x`.

    He et al. 2015, section 3.3 (B).
    """
    if stride == 1 and x.shape[-1] == filters:
        return x
    projection = convolution(x, filters, 1, f"{name}_shortcut", stride)
    return norms.inner(projection, f"{name}_shortcut_bn")


def _add_shortcut(x: tf.Tensor, shortcut: tf.Tensor, name: str) -> tf.Tensor:
    x = tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])
    return tf_keras.layers.ReLU(name=f"{name}_relu")(x)


def basic_v1(x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms) -> tf.Tensor:
    """Returns two 3 x 3 convolutions with a shortcut, and ReLU after the addition.

    He et al. 2015, figure 5 left. The first convolution has the stride.
    """
    shortcut = _project(x, filters, stride, name, norms)
    x = convolution(x, filters, 3, f"{name}_conv1", stride)
    x = convolution(norm_relu(x, f"{name}_conv1", norms.inner), filters, 3, f"{name}_conv2")
    return _add_shortcut(norms.last(x, f"{name}_conv2_bn"), shortcut, name)


def bottleneck_v1(x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms) -> tf.Tensor:
    """Returns 1 x 1, 3 x 3 and 1 x 1 convolutions with a shortcut, and ReLU after the addition.

    He et al. 2015, figure 5 right. The first convolution has the stride, as in the models that the
    authors released; in version 1.5, the second has it.
    """
    shortcut = _project(x, filters, stride, name, norms)
    inner = filters // _BOTTLENECK_RATIO
    x = convolution(x, inner, 1, f"{name}_conv1", stride)
    x = convolution(norm_relu(x, f"{name}_conv1", norms.inner), inner, 3, f"{name}_conv2")
    x = convolution(norm_relu(x, f"{name}_conv2", norms.inner), filters, 1, f"{name}_conv3")
    return _add_shortcut(norms.last(x, f"{name}_conv3_bn"), shortcut, name)


def _activate(
    x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms, activated: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the activated input of a pre-activation block, and its shortcut."""
    active = x if activated else norm_relu(x, f"{name}_conv1", norms.inner)
    if stride == 1 and x.shape[-1] == filters:
        return active, x
    return active, convolution(active, filters, 1, f"{name}_shortcut", stride)


def basic_v2(
    x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms, activated: bool = False
) -> tf.Tensor:
    """Returns two pre-activated 3 x 3 convolutions, with nothing after the addition.

    He et al. 2016, figure 1(b). The first convolution has the stride. `activated` is True if `x` is
    already activated, as for the first block of the network (He et al. 2016, appendix).
    """
    x, shortcut = _activate(x, filters, stride, name, norms, activated)
    x = convolution(x, filters, 3, f"{name}_conv1", stride)
    x = convolution(norm_relu(x, f"{name}_conv2", norms.inner), filters, 3, f"{name}_conv2")
    return tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])


def bottleneck_v2(
    x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms, activated: bool = False
) -> tf.Tensor:
    """Returns a pre-activated bottleneck with the stride in its 3 x 3 convolution.

    He et al. 2016, figure 1(b) and section 4. The position of the stride is that of the
    ImageNet networks to which the paper's repository links. `activated` is as in `basic_v2`.
    """
    x, shortcut = _activate(x, filters, stride, name, norms, activated)
    inner = filters // _BOTTLENECK_RATIO
    x = convolution(x, inner, 1, f"{name}_conv1")
    x = convolution(norm_relu(x, f"{name}_conv2", norms.inner), inner, 3, f"{name}_conv2", stride)
    x = convolution(norm_relu(x, f"{name}_conv3", norms.inner), filters, 1, f"{name}_conv3")
    return tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])
