"""Restricts AutoGraph to code outside this package, which may branch on tensors in Python.

Converting a function takes 20 to 90 ms, and the start of a small run calls twenty functions of this
package. Code that Keras converts itself, such as calls of layers, is not affected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orbit_runner.tf_internals import AutographControl, AutographStatus, autograph_convert

_PACKAGE = __name__.partition(".")[0]


def convert(function: Callable[..., object], owner: object) -> Callable[..., Any]:
    """Returns a function for a graph that is traced with `autograph=False`.

    If the class of `owner` is defined outside this package, its methods may branch and loop over
    tensors in plain Python, including the inherited methods that call them. Otherwise, the function
    is not converted. `function` calls code of `owner`, such as its training step.
    """
    is_foreign = not is_from_this_package(owner)
    # ENABLED, because `Strategy.run` does not continue to convert with UNSPECIFIED.
    status = AutographStatus.ENABLED if is_foreign else AutographStatus.UNSPECIFIED
    converted: Callable[..., Any] = autograph_convert(
        function, AutographControl(status), convert_by_default=is_foreign
    )
    return converted


def is_from_this_package(owner: object) -> bool:
    """Returns whether the class of an object itself, not a base class, is from this package."""
    return type(owner).__module__.partition(".")[0] == _PACKAGE
