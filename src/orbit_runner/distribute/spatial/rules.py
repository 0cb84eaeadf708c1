"""How each layer is run on parts: a registry from layer classes to rules.

A rule is found by the layer's very class: a subclass may do something else. A network with a layer
of another package runs partitioned after one line,

    register(MyLayer)(Rule(pointwise))

if the layer treats each pixel alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.distribute.spatial.grid import Grid, gather, scatter, spread
from orbit_runner.distribute.spatial.placement import run_on_device

Layer = Any
Run = Callable[..., Any]
"""`run(layer, call, *args, **kwargs)`: the layer's output, a `Grid` or a whole tensor. `call` is a
`Call`; the arguments are those of the layer, and tensors in parts among them are a `Grid`."""


@dataclasses.dataclass(frozen=True)
class Call:
    """Calls layers as Keras would where the network is not partitioned.

    Attributes:
        training: Whether in training.
        autograph: Whether the code of layers is converted, as TensorFlow keeps it.
    """

    training: bool
    autograph: Any

    def __call__(self, layer: Layer, *args: Any, **kwargs: Any) -> Any:
        """Calls a layer.

        Args:
            layer: The layer.
            *args: Its arguments, without parts among them.
            **kwargs: The same.

        Returns:
            Its output.
        """

        def run() -> Any:
            return layer(*args, **kwargs)

        return tf.__internal__.autograph.tf_convert(run, self.autograph)()


def _nothing(layer: Layer) -> str | None:
    return None


@dataclasses.dataclass(frozen=True)
class Rule:
    """How one kind of layer is run on parts.

    Attributes:
        run: Runs it.
        refusal: Says of a layer why it cannot be run so, such as "has groups"; None where it can.
        whole: Whether the output is whole, on the first device.
        inner: Makes the functional model that a layer of layers is checked by; None for others.
    """

    run: Run
    refusal: Callable[[Layer], str | None] = _nothing
    whole: bool = False
    inner: Callable[[Layer], Any] | None = None


RULES: dict[type | str, Rule] = {}
"""By class, or by module and name for classes that are not imported for it."""


def register(*classes: type | str) -> Callable[[Rule], Rule]:
    """Makes a function that enters a rule for layer classes.

    Args:
        *classes: The classes themselves, or module and name of each; the rule does not hold for
            subclasses.

    Returns:
        A function from the rule to the rule.
    """

    def enter(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(classes, rule))
        return rule

    return enter


def rule_of(layer: Layer) -> Rule | None:
    """Returns the rule of a layer, None where there is none.

    Args:
        layer: Any layer of a functional model.
    """
    kind = type(layer)
    return RULES.get(kind) or RULES.get(f"{kind.__module__}.{kind.__qualname__}")


def pointwise(layer: Layer, call: Call, *args: Any, **kwargs: Any) -> Grid:
    """Runs a layer without variables on each part: each pixel depends on itself alone.

    Args:
        layer: The layer.
        call: Calls it.
        *args: What it is called with.
        **kwargs: The same.

    Returns:
        The output.
    """
    flat = tf.nest.flatten((args, kwargs))
    grids = [value for value in flat if isinstance(value, Grid)]
    like = grids[0]
    values = [_fitting(value, like) for value in flat]
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


def _fitting(value: Any, like: Grid) -> Any:
    """Brings a whole tensor beside parts into the same parts, one of a single pixel to all."""
    if not tf.is_tensor(value) or value.shape.rank != 4:
        return value
    if (value.shape[1], value.shape[2]) == (like.height, like.width):
        return scatter(value, like.layout)
    return spread(value, like)


def whole(layer: Layer, call: Call, grid: Grid, **kwargs: Any) -> Any:
    """Runs a layer on the first device, on all parts together.

    Args:
        layer: The layer.
        call: Calls it.
        grid: Its input.
        **kwargs: Further arguments.

    Returns:
        Its output, which is not partitioned.
    """
    return call(layer, gather(grid), **kwargs)
