"""Python's search for garbage that is tied in circles, put off until a process has started.

Importing TensorFlow and tracing make a million objects, nearly all of which stay. Searching them
again and again takes a quarter of the time until the first step.
"""

from __future__ import annotations

import gc

_searched_before = False


def put_off() -> None:
    """Stops the search, for the start of a process or for all of one that is soon over."""
    global _searched_before
    _searched_before = gc.isenabled()
    gc.disable()


def resume() -> None:
    """Searches again, but never among what is there by now; nothing where it was not put off."""
    global _searched_before
    if _searched_before:
        gc.freeze()
        gc.enable()
    _searched_before = False
