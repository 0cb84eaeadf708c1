"""The networks of `tf_keras.applications`, with a new classifier."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tf_keras

from orbit_runner.models.heads import classifier
from orbit_runner.models.normalize import normalized_input
from orbit_runner.models.published_weights import APPLICATIONS, BACKBONE

_HEAD = "glorot_uniform"


def keras_application(
    *,
    input_shape: Sequence[int],
    num_classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    input_dtype: str = "uint8",
    application: str = "ResNet50",
    dropout_rate: float = 0.0,
) -> tf_keras.Model:
    """Returns an application without its classifier, as the layer `backbone`, and a new one.

    The model maps raw pixels [batch, height, width, 3] to float32 logits [batch, num_classes].
    `mean` and `std` are those of `Normalize`; with those of `APPLICATIONS`, the backbone gets what
    `preprocess_input` of the application returns. `application` is a name in `APPLICATIONS`.
    """
    # Names of layers must not depend on what was built before in this process.
    tf_keras.backend.reset_uids()
    inputs, x = normalized_input(input_shape, input_dtype, mean, std)
    if APPLICATIONS[application].pixels.is_bgr:
        x = tf.reverse(x, axis=[-1])
    network = getattr(tf_keras.applications, application)(
        include_top=False, weights=None, input_shape=tuple(input_shape)
    )
    backbone = tf_keras.Model(network.inputs, network.outputs, name=BACKBONE)
    return classifier(
        inputs,
        backbone(x),
        num_classes=num_classes,
        dropout_rate=dropout_rate,
        kernel_initializer=_HEAD,
        name=application.lower(),
    )
