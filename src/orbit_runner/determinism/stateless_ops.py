"""Stateless replacements for TensorFlow's stateful random ops, and the keys of their draws.

The generator is Philox, whose output is a function of a 64-bit key and a 128-bit counter. A draw
uses a stream's key and the counter `[0, call number]`; TensorFlow increments the first word within
the draw. A derived key is the output of the generator for a counter whose second word is at least
2^63, which no draw reaches.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.tf_internals import keras_3_initial_seed

if TYPE_CHECKING:
    from tensorflow.types.experimental import TensorLike


@dataclasses.dataclass(frozen=True)
class Draw:
    """The values that determine a draw."""

    key: tf.Tensor  # uint64 [1].
    number: int  # The number of the call.
    calls: Calls  # The stream of the draw.

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


def _stateless(
    op: Callable[..., tf.Tensor], arguments: str, *, takes_seed: bool = False, **defaults: object
) -> Callable[..., tf.Tensor]:
    """Returns a function that draws with a stateless op, and has the arguments of a stateful one.

    These are raw ops, because other public functions take a seed that they hash again in each draw.

    Args:
        op: Creates the stateless op from arguments with the same names.
        arguments: The names of the arguments of the stateful op, in their order.
        takes_seed: Whether the op takes a seed; if not, a key, a counter and an algorithm.
        defaults: The defaults of the stateful op.
    """
    names = arguments.split()

    def draw_values(draw: Draw, *args: object, **kwargs: object) -> tf.Tensor:
        values = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        values = {name: value for name, value in values.items() if name not in ("seed", "seed2")}
        return op(**values, **({"seed": draw.seed} if takes_seed else draw.generator))

    return draw_values


def _parameterized_truncated_normal(
    shape: TensorLike,
    means: TensorLike,
    stdevs: TensorLike,
    minvals: TensorLike,
    maxvals: TensorLike,
    **options: Any,
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
        means=broadcast_rows(means),
        stddevs=broadcast_rows(stdevs),
        minvals=broadcast_rows(minvals),
        maxvals=broadcast_rows(maxvals),
        **options,
    )


def _gamma(shape: TensorLike, alpha: TensorLike, **options: Any) -> tf.Tensor:
    shape = _full_shape(shape, alpha)
    return tf.raw_ops.StatelessRandomGammaV3(shape=shape, alpha=alpha, **options)


def _poisson(shape: TensorLike, rate: TensorLike, **options: Any) -> tf.Tensor:
    shape = _full_shape(shape, rate)
    return tf.raw_ops.StatelessRandomPoisson(shape=shape, lam=rate, **options)


def _generator_binomial(resource: object, algorithm: object, **options: Any) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomBinomial(**options)


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


_OPS = tf.raw_ops
# The replacements by the names in `tf_internals` of the functions that create the ops.
REPLACEMENTS: dict[str, Callable[..., tf.Tensor]] = {
    "random_uniform": _stateless(_OPS.StatelessRandomUniformV2, "shape dtype seed seed2 name"),
    "random_uniform_int": _stateless(
        _OPS.StatelessRandomUniformIntV2, "shape minval maxval seed seed2 name"
    ),
    "random_standard_normal": _stateless(
        _OPS.StatelessRandomNormalV2, "shape dtype seed seed2 name"
    ),
    "truncated_normal": _stateless(_OPS.StatelessTruncatedNormalV2, "shape dtype seed seed2 name"),
    "parameterized_truncated_normal": _stateless(
        _parameterized_truncated_normal,
        "shape means stdevs minvals maxvals seed seed2 name",
        takes_seed=True,
    ),
    "multinomial": _stateless(
        _OPS.StatelessMultinomial,
        "logits num_samples seed seed2 output_dtype name",
        takes_seed=True,
        output_dtype=tf.int64,
    ),
    "random_gamma": _stateless(_gamma, "shape alpha seed seed2 name"),
    "random_poisson": _stateless(
        _poisson, "shape rate seed seed2 dtype name", takes_seed=True, dtype=tf.int64
    ),
    "random_shuffle": _stateless(_OPS.StatelessShuffle, "value seed seed2 name"),
    "generator_binomial": _stateless(
        _generator_binomial,
        "resource algorithm shape counts probs dtype name",
        takes_seed=True,
        dtype=tf.int64,
    ),
    "generator_skip": _generator_state,
}
# The same for Keras 3, whose layers draw a seed from a generator of their own.
KERAS_3_REPLACEMENTS: dict[str, Callable[..., object]] = {
    "keras_3_seed": _keras_3_seed,
    "keras_3_generator": _keras_3_generator,
}


PHILOX = 1
_CHILD = 1 << 63
_PIECE = _CHILD | 1 << 62
_SEEDED = _CHILD | 1 << 61


class Calls:
    """A key (uint64 [1]), and the number of the next draw that uses it."""

    def __init__(self, key: tf.Tensor) -> None:
        self.key = key
        self._numbers = itertools.count()
        self._seeded_keys: dict[int, tf.Tensor] = {}
        self._seeded_numbers: dict[int, itertools.count[int]] = {}

    def next(self) -> int:
        """Returns the next number."""
        return next(self._numbers)

    def seeded(self, seed: int, generator: object) -> tuple[tf.Tensor, int]:
        """Returns the key (uint64 [1]) and the number of the next draw of a generator with a seed.

        Generators with equal seeds have equal keys, so that they draw equal values.
        """
        if seed not in self._seeded_keys:
            self._seeded_keys[seed] = _derive(self.key, seed, _SEEDED)
        numbers = self._seeded_numbers.setdefault(id(generator), itertools.count())
        return self._seeded_keys[seed], next(numbers)

    def child_key(self, index: tf.Tensor | int = 0) -> tf.Tensor:
        """Returns the key (uint64 [1]) of a loop or a function call, which has its own draws.

        `index` is the iteration of the loop, an integer scalar.
        """
        return _derive(self.key, index, _CHILD | self.next())

    def piece_key(self, index: tf.Tensor | int) -> tf.Tensor:
        """Returns the key (uint64 [1]) of a piece, independent of earlier draws.

        `index` is an integer scalar.
        """
        return _derive(self.key, index, _PIECE)


def step_key(seed: int, purpose: str, step: tf.Tensor | int, replica: tf.Tensor | int) -> tf.Tensor:
    """Returns the key (uint64 [1]) of a replica's step.

    `step` and `replica` are integer scalars.
    """
    digest = hashlib.sha256(f"{seed} {purpose}".encode()).digest()
    root = tf.constant(np.frombuffer(digest[:8], "<u8").astype(np.uint64))
    return _derive(root, step, replica)


def _derive(key: tf.Tensor, low: tf.Tensor | int, high: tf.Tensor | int) -> tf.Tensor:
    if isinstance(low, int) and isinstance(high, int):
        counter = tf.constant(np.array([low % 2**64, high % 2**64], np.uint64))
    else:
        counter = tf.stack([_uint64(low), _uint64(high)])
    # Other public functions take a seed, which they hash again in each draw.
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[1], key=key, counter=counter, alg=PHILOX, dtype=tf.uint64
    )


def _uint64(value: tf.Tensor | int) -> tf.Tensor:
    if isinstance(value, int):
        return tf.constant(np.uint64(value % 2**64))
    return tf.cast(value, tf.uint64)
