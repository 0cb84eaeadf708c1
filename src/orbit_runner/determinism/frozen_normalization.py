"""A gradient of batch normalization in inference mode, such as that of a frozen layer.

TensorFlow's kernel on a GPU is not deterministic. In training mode, it has another one.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def replace_frozen_gradient(op: Any, grad: tf.Tensor, *_: Any) -> list[tf.Tensor | None] | None:
    """Returns the gradients of the inputs of `FusedBatchNorm`: images, scale and offset.

    `grad` is the gradient of the normalized images. Returns None in training mode.
    """
    if op.get_attr("is_training"):
        return None
    images, scale, _, mean, variance = op.inputs
    data_format = op.get_attr("data_format").decode()
    channels = data_format.index("C")
    sizes = [1] * len(data_format)
    sizes[channels] = -1
    with tf.name_scope("FrozenBatchNormGradient"):
        # The statistics are float32, also those of float16 and bfloat16 images.
        grads = tf.cast(grad, scale.dtype)
        centered = tf.cast(images, scale.dtype) - tf.reshape(mean, sizes)
        inverse = tf.math.rsqrt(variance + op.get_attr("epsilon"))
        others = [axis for axis in range(len(sizes)) if axis != channels]
        of_scale = tf.reduce_sum(grads * centered, others) * inverse
        of_images = tf.cast(grads * tf.reshape(scale * inverse, sizes), images.dtype)
        return [of_images, of_scale, tf.reduce_sum(grads, others), None, None]
