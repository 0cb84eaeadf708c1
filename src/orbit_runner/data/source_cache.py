"""Caches what a run reads from its data, and forgets it at the end of the run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])

_caches: list[Any] = []


def cache_source(maxsize: int) -> Callable[[_Function], _Function]:
    """Returns a decorator that caches what a function reads until the end of `source_cache_scope`.

    The arguments of the function must be hashable. Unlike `functools.lru_cache`, it may read files
    that change between two runs of one process.
    """

    def decorate(function: _Function) -> _Function:
        cached = functools.lru_cache(maxsize=maxsize)(function)
        _caches.append(cached)
        return cast(_Function, cached)

    return decorate


@contextlib.contextmanager
def source_cache_scope() -> Iterator[None]:
    """Clears the caches of all sources at the end of a `with` block."""
    try:
        yield
    finally:
        for cached in _caches:
            cached.cache_clear()
