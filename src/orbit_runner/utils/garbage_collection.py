"""Pauses Python's cyclic garbage collection while many long-lived objects are created.

Importing TensorFlow and tracing a step create a million objects, most of which are long-lived.
Searching them repeatedly takes a quarter of the time until the first step.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_freezes_after_pauses = False


def freeze_after_pauses() -> None:
    """Makes later collections ignore all objects that exist at the end of a pause.

    Only for a process that this package starts. In other programs, garbage would be kept as well.
    """
    global _freezes_after_pauses
    _freezes_after_pauses = True


@contextlib.contextmanager
def paused_collection_scope() -> Iterator[None]:
    """Pauses collection in a `with` block. Does nothing if it is paused or disabled already."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if _freezes_after_pauses:
            gc.freeze()
        gc.enable()
