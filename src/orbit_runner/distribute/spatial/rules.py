"""How each layer is run on parts: a registry from layer classes to rules.

A rule applies only to the exact class of a layer, because a subclass may do something else. If a
layer of another package processes each pixel separately, a network with it runs partitioned after
this line:

    register(MyLayer)(Rule(pointwise))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.distribute.spatial.grid import Grid, gather, scatter, spread_pixel
from orbit_runner.distribute.spatial.placement import run_on_device
from orbit_runner.tf_internals import autograph_convert

if TYPE_CHECKING:
    from orbit_runner.tf_internals import Functional
    from orbit_runner.utils.types import Tensors


Layer = Any
# `run(layer, call, *args, **kwargs)` returns the layer's output, a `Grid` or a whole tensor. `call`
# is a `Call`. The other arguments are those of the layer, with a `Grid` for each tensor that is
# split into parts.
Run = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Call:
    """Calls layers as Keras does without a partition."""

    training: bool
    autograph: Any  # TensorFlow's context, which says whether the code of layers is converted.

    def __call__(self, layer: Layer, *args: object, **kwargs: object) -> Tensors:
        """Returns the output of a layer, whose arguments must not contain a `Grid`."""

        def run() -> Tensors:
            return layer(*args, **kwargs)

        return autograph_convert(run, self.autograph)()


def _no_refusal(layer: Layer) -> str | None:
    return None


@dataclasses.dataclass(frozen=True)
class Rule:
    """How one kind of layer is run on parts."""

    run: Run
    # Returns why a layer cannot be run in this way, such as "has groups"; None if it can.
    refusal: Callable[[Layer], str | None] = _no_refusal
    whole: bool = False  # Whether the output is whole, on the first device.
    # Returns the functional model to check for a layer that consists of layers; else None.
    inner: Callable[[Layer], Functional | None] | None = None


# By class, or by module and name, which avoids importing the class.
RULES: dict[type | str, Rule] = {}


def register(*classes: type | str) -> Callable[[Rule], Rule]:
    """Returns a function that registers a rule for layer classes, and returns the rule.

    Each argument is a class, or a string with its module and name. The rule does not apply to
    subclasses.
    """

    def add_rule(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(classes, rule))
        return rule

    return add_rule


def rule_of(layer: Layer) -> Rule | None:
    """Returns the rule of a layer; None if its class is not registered."""
    kind = type(layer)
    return RULES.get(kind) or RULES.get(f"{kind.__module__}.{kind.__qualname__}")


def pointwise(layer: Layer, call: Call, *args: object, **kwargs: object) -> Grid:
    """Returns the output of a layer that processes each pixel separately, run on each part.

    The layer must not have variables.
    """
    flat = tf.nest.flatten((args, kwargs))
    grids = [value for value in flat if isinstance(value, Grid)]
    like = grids[0]
    values = [_scatter_like(value, like) for value in flat]
    places = [index for index, value in enumerate(values) if isinstance(value, Grid)]

    def run(*parts: tf.Tensor) -> list[tf.Tensor]:
        filled = list(values)
        for index, part in zip(places, parts, strict=True):
            filled[index] = part
        new_args, new_kwargs = tf.nest.pack_sequence_as((args, kwargs), filled)
        return [call(layer, *new_args, **new_kwargs)]

    return like.replace_parts(
        run_on_device(
            like.layout.device(place), run, *(values[index].parts[place] for index in places)
        )[0]
        for place in like.parts
    )


def _scatter_like(value: Any, like: Grid) -> Any:
    """Returns a whole tensor in parts like the others; a single pixel is copied to all parts."""
    if not tf.is_tensor(value) or value.shape.rank != 4:
        return value
    if (value.shape[1], value.shape[2]) == (like.height, like.width):
        return scatter(value, like.layout)
    return spread_pixel(value, like)


def run_unpartitioned(layer: Layer, call: Call, grid: Grid, **kwargs: object) -> Tensors:
    """Returns the output of a layer, run on the first device on all parts joined."""
    return call(layer, gather(grid), **kwargs)
