"""Type annotations of Model Garden's config classes, resolved once for each class."""

from __future__ import annotations

import functools
from typing import Any

from official.modeling.hyperparams import base_config

_NAME = "_get_annotations"


def remember_annotations() -> None:
    """Makes its classes remember their annotations.

    They ask for them at each assignment, thousands of times before an experiment is built.
    """
    found = vars(base_config.Config)[_NAME].__func__
    if not hasattr(found, "cache_info"):
        remembered: Any = functools.cache(found)
        setattr(base_config.Config, _NAME, classmethod(remembered))
