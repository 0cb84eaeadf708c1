"""File patterns as settings of Model Garden's experiments have them."""

from __future__ import annotations

from typing import Any


def patterns(path: Any) -> list[str]:
    """Returns the file patterns of an `input_path`.

    Args:
        path: A text, with commas between several; a list of such; a mapping of such by name.
    """
    if isinstance(path, str):
        return [part.strip() for part in path.split(",") if part.strip()]
    values = path.values() if hasattr(path, "values") else path or ()
    return [found for value in values for found in patterns(value)]


def is_local(path: str) -> bool:
    """Returns whether a path is one of this machine's, and not such as `gs://…`."""
    return "://" not in path
