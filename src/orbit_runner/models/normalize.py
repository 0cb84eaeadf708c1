"""The entrance of every network here: raw pixels in, normalised values out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras


@tf_keras.utils.register_keras_serializable(package="orbit_runner")
class Normalize(tf_keras.layers.Layer):
    """Subtracts a mean and divides by a standard deviation, per channel, without variables."""

    def __init__(
        self,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Takes the constants.

        Args:
            mean: One value a channel, or one for all, in the unit of the input; None for 0.
            std: One positive value a channel, or one for all, in the same unit; None for 1.
            **kwargs: The arguments of every Keras layer.

        Raises:
            ValueError: If a standard deviation is not positive.
        """
        # Left to itself Keras would round a float input to 16 bits before the mean is taken off.
        super().__init__(autocast=False, **kwargs)
        self.mean = None if mean is None else tuple(float(value) for value in mean)
        self.std = None if std is None else tuple(float(value) for value in std)
        if self.std is not None and not all(value > 0 for value in self.std):
            raise ValueError(f"`std` ({self.std}) must be positive in every channel.")

    def build(self, input_shape: Any) -> None:
        """Checks the constants against the channels of the input.

        Args:
            input_shape: The shape with the batch in front and the channels last.

        Raises:
            ValueError: If there is neither one constant nor one a channel.
        """
        channels = input_shape[-1]
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, channels):
                raise ValueError(
                    f"`{name}` ({values}) must have 1 value or {channels}, one a channel."
                )
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Normalises in float32 and rounds once, at the end.

        Args:
            inputs: Any shape with the channels last, any number type, raw pixel values.

        Returns:
            The same shape in the compute dtype of the policy, in standard deviations.
        """
        x = tf.cast(inputs, tf.float32)
        if self.mean is not None:
            x = x - tf.constant(self.mean, tf.float32)
        if self.std is not None:
            x = x / tf.constant(self.std, tf.float32)
        return tf.cast(x, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Describes the layer so that Keras can make it again.

        Returns:
            The arguments of the constructor.
        """
        return {**super().get_config(), "mean": self.mean, "std": self.std}


def normalized_input(
    input_shape: Sequence[int],
    dtype: str,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Opens a network with an input of raw pixels and their normalisation.

    Args:
        input_shape: The shape of one example, channels last: `(height, width, channels)`.
        dtype: The dtype that the pixels arrive in, such as `"uint8"`.
        mean: One value a channel (or one for all) in raw pixel units; None for no shift.
        std: One positive value a channel (or one for all) in raw pixel units; None for no scale.

    Returns:
        The symbolic input `[batch, *input_shape]` of `dtype`, named `image`, and the normalised
        tensor of the same shape in the compute dtype of the global policy.

    Raises:
        ValueError: If the constants do not fit the channels or `std` is not positive.
    """
    inputs = tf_keras.Input(shape=tuple(input_shape), dtype=dtype, name="image")
    return inputs, Normalize(mean, std, name="normalize")(inputs)
