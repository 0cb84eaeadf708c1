"""The list of the patches of TensorFlow and Keras, which stay until the process ends.

There is no public way to do the same. Outside of the scope or the setting of a patch, each
replacement calls the original.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

_T = TypeVar("_T")

# What each patch does, by the module of this package that installs it.
PATCHES = {
    "scopes": "TensorFlow's random ops draw with the key of a scope",
    "scopes of Keras 3": "the random draws of Keras 3 do, too",
    "keras_3": "replicas have values of their own of variables that have no gradients",
    "portable_ops": "ops with approximate instructions become square roots and divisions",
    "gradient_patches": "gradients without a deterministic kernel become other ops",
    "logical_replica": "a device computes what one of several replicas would",
}
_lock = threading.Lock()
_installed: set[str] = set()


def install(patch: str, replace: Callable[[], None]) -> None:
    """Calls `replace`, which installs one of `PATCHES`, unless it is installed already."""
    assert patch in PATCHES
    with _lock:
        if patch not in _installed:
            replace()
            _installed.add(patch)


@contextlib.contextmanager
def set_scope(variable: ContextVar[_T], value: _T) -> Iterator[None]:
    """Sets what the replacements ask, in a `with` block.

    It has its default in other threads: `MirroredStrategy` traces each replica in one of its own.
    """
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
