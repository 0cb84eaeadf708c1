"""Python's cyclic garbage collection, paused while many lasting objects are created.

Importing TensorFlow and tracing a step create a million objects, nearly all of which stay.
Searching them again and again takes a quarter of the time until the first step.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_freezes = False


def freeze_after_pauses() -> None:
    """Makes later collections ignore all objects that exist at the end of a pause.

    For a process of this runner's own: in another program, its garbage would stay as well.
    """
    global _freezes
    _freezes = True


@contextlib.contextmanager
def paused_collection_scope() -> Iterator[None]:
    """Pauses collection in a `with` block; does nothing if it is paused or disabled already."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if _freezes:
            gc.freeze()
        gc.enable()
