"""Which code AutoGraph converts: that of others, who may branch on tensors, and none of ours.

Converting takes 20 to 90 ms a function, and the start of a small run passes twenty of ours. What
Keras has converted by itself, such as the calls of layers, is as it always was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx  # there is no public way to say "enabled"

_PACKAGE = __name__.partition(".")[0]


def convert(function: Callable[..., Any], owner: Any) -> Callable[..., Any]:
    """Makes a function ready for a graph that is traced with `autograph=False`.

    Args:
        function: Runs code of `owner`, such as its training step.
        owner: An object. Where its class is not of this package, its methods, and those that it
            has from us and calls them, may branch and loop over tensors in plain Python.

    Returns:
        A function that does the same; of our own objects, without looking for such branches.
    """
    theirs = not is_ours(owner)
    # Enabled, and not only unspecified: `Strategy.run` would not go on with it then.
    status = ag_ctx.Status.ENABLED if theirs else ag_ctx.Status.UNSPECIFIED
    control = ag_ctx.ControlStatusCtx(status)
    converted: Callable[..., Any] = tf.__internal__.autograph.tf_convert(
        function, control, convert_by_default=theirs
    )
    return converted


def is_ours(owner: Any) -> bool:
    """Returns whether the class of an object is of this package.

    Args:
        owner: The object. A class of others that extends one of ours is theirs.
    """
    return type(owner).__module__.partition(".")[0] == _PACKAGE
