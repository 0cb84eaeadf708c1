"""Stateless replacements for TensorFlow's stateful random ops."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from orbit_runner.determinism.keys import PHILOX, Calls
from orbit_runner.tf_internals import keras_3_initial_seed

if TYPE_CHECKING:
    from tensorflow.types.experimental import TensorLike


@dataclasses.dataclass(frozen=True)
class Draw:
    """The values that determine a draw."""

    # uint64 [1].
    key: tf.Tensor

    # The number of the call.
    number: int

    # The stream of the draw.
    calls: Calls

    @property
    def generator(self) -> dict[str, tf.Tensor | int]:
        """The arguments of the ops that take a key, a counter and an algorithm."""
        counter = tf.constant(np.array([0, self.number], np.uint64))
        return {"key": self.key, "counter": counter, "alg": PHILOX}

    @property
    def seed(self) -> tf.Tensor:
        """The argument, int64 [2], of the ops that take a seed."""
        number = tf.constant([self.number], tf.int64)
        return tf.concat([tf.bitcast(self.key, tf.int64), number], axis=0)


# Below, `seed`, `seed2` and `shape` are the arguments of the stateful op. The stateless ops are raw
# ops, because other public functions take a seed that they hash again in each draw.


def _uniform(
    draw: Draw,
    shape: TensorLike,
    dtype: object,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformV2(
        shape=shape, dtype=dtype, name=name, **draw.generator
    )


def _uniform_int(
    draw: Draw,
    shape: TensorLike,
    minval: TensorLike,
    maxval: TensorLike,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformIntV2(
        shape=shape, minval=minval, maxval=maxval, name=name, **draw.generator
    )


def _normal(
    draw: Draw,
    shape: TensorLike,
    dtype: object,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomNormalV2(shape=shape, dtype=dtype, name=name, **draw.generator)


def _truncated_normal(
    draw: Draw,
    shape: TensorLike,
    dtype: object,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> tf.Tensor:
    return tf.raw_ops.StatelessTruncatedNormalV2(
        shape=shape, dtype=dtype, name=name, **draw.generator
    )


def _parameterized_truncated_normal(
    draw: Draw,
    shape: TensorLike,
    means: TensorLike,
    stdevs: TensorLike,
    minvals: TensorLike,
    maxvals: TensorLike,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> tf.Tensor:
    shape = tf.convert_to_tensor(shape)

    def broadcast_rows(parameter: TensorLike) -> tf.Tensor:
        # The stateful op takes a scalar, or one value for each row of the result. The stateless op
        # would apply the values along the last dimension.
        parameter = tf.convert_to_tensor(parameter)
        if parameter.shape.rank == 0:
            return parameter
        column = tf.concat([[-1], tf.ones([tf.size(shape) - 1], tf.int32)], axis=0)
        return tf.broadcast_to(tf.reshape(parameter, column), shape)

    return tf.raw_ops.StatelessParameterizedTruncatedNormal(
        shape=shape,
        seed=draw.seed,
        means=broadcast_rows(means),
        stddevs=broadcast_rows(stdevs),
        minvals=broadcast_rows(minvals),
        maxvals=broadcast_rows(maxvals),
        name=name,
    )


def _multinomial(
    draw: Draw,
    logits: TensorLike,
    num_samples: TensorLike,
    seed: int = 0,
    seed2: int = 0,
    output_dtype: object = tf.int64,
    name: str | None = None,
) -> tf.Tensor:
    return tf.raw_ops.StatelessMultinomial(
        logits=logits,
        num_samples=num_samples,
        seed=draw.seed,
        output_dtype=output_dtype,
        name=name,
    )


def _gamma(
    draw: Draw,
    shape: TensorLike,
    alpha: TensorLike,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomGammaV3(
        shape=_full_shape(shape, alpha), alpha=alpha, name=name, **draw.generator
    )


def _poisson(
    draw: Draw,
    shape: TensorLike,
    rate: TensorLike,
    seed: int = 0,
    seed2: int = 0,
    dtype: object = tf.int64,
    name: str | None = None,
) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomPoisson(
        shape=_full_shape(shape, rate), seed=draw.seed, lam=rate, dtype=dtype, name=name
    )


def _shuffle(
    draw: Draw, value: TensorLike, seed: int = 0, seed2: int = 0, name: str | None = None
) -> tf.Tensor:
    return tf.raw_ops.StatelessShuffle(value=value, name=name, **draw.generator)


def _generator_binomial(
    draw: Draw,
    resource: object,
    algorithm: object,
    shape: TensorLike,
    counts: TensorLike,
    probs: TensorLike,
    dtype: object = tf.int64,
    name: str | None = None,
) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomBinomial(
        shape=shape, seed=draw.seed, counts=counts, probs=probs, dtype=dtype, name=name
    )


def _generator_state(draw: Draw, generator: tf.random.Generator, delta: object) -> tf.Tensor:
    # The words of the counter, then the key. If the counter has one word, it starts at the call
    # number and is incremented within the draw: starts are 2^40 apart, so draws do not overlap.
    words = generator.state.shape[0] - 1
    counter = [0, draw.number] if words == 2 else [draw.number << 40]
    return tf.concat([tf.constant(counter, tf.int64), tf.bitcast(draw.key, tf.int64)], axis=0)


def _keras_3_seed(draw: Draw, generator: object = None, ordered: bool = True) -> tf.Tensor:
    seed = keras_3_initial_seed(generator)
    if seed is not None:  # An image and its mask are augmented alike by layers with equal seeds.
        key, number = draw.calls.seeded(int(seed), generator)
        draw = dataclasses.replace(draw, key=key, number=number)
    # int32, because Keras would keep only the remainder of larger numbers.
    return tf.raw_ops.StatelessRandomUniformFullIntV2(shape=[2], dtype=tf.int32, **draw.generator)


def _keras_3_generator(draw: Draw) -> types.SimpleNamespace:
    # Draws without a seed use it. Each thread has another one, which is created at its first draw.
    return types.SimpleNamespace(next=functools.partial(_keras_3_seed, draw))


def _full_shape(shape: TensorLike, parameter: TensorLike) -> tf.Tensor:
    shape = tf.convert_to_tensor(shape)
    return tf.concat([shape, tf.shape(parameter, out_type=shape.dtype)], axis=0)


# The replacements by the names in `tf_internals` of the functions that create the ops.
REPLACEMENTS: dict[str, Callable[..., tf.Tensor]] = {
    "random_uniform": _uniform,
    "random_uniform_int": _uniform_int,
    "random_standard_normal": _normal,
    "truncated_normal": _truncated_normal,
    "parameterized_truncated_normal": _parameterized_truncated_normal,
    "multinomial": _multinomial,
    "random_gamma": _gamma,
    "random_poisson": _poisson,
    "random_shuffle": _shuffle,
    "generator_binomial": _generator_binomial,
    "generator_skip": _generator_state,
}
# The same for Keras 3, whose layers draw a seed from a generator of their own.
KERAS_3_REPLACEMENTS: dict[str, Callable[..., object]] = {
    "keras_3_seed": _keras_3_seed,
    "keras_3_generator": _keras_3_generator,
}
