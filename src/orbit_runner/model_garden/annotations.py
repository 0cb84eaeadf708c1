"""Caches the type annotations of Model Garden's config classes, once per class."""

from __future__ import annotations

import functools
from typing import Any

from official.modeling.hyperparams import base_config

_NAME = "_get_annotations"


def remember_annotations() -> None:
    """Makes Model Garden's config classes cache their annotations.

    They look them up at each assignment, thousands of times before an experiment is built.
    """
    found = vars(base_config.Config)[_NAME].__func__
    if not hasattr(found, "cache_info"):
        remembered: Any = functools.cache(found)
        setattr(base_config.Config, _NAME, classmethod(remembered))
