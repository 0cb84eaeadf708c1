"""The file patterns in the `input_path` of Model Garden's experiments."""

from __future__ import annotations

from typing import Any


def patterns(path: Any) -> list[str]:
    """Returns the file patterns of an `input_path`.

    It can be a comma-separated string, or a (nested) list or mapping of such strings.
    """
    if isinstance(path, str):
        return [part.strip() for part in path.split(",") if part.strip()]
    values = path.values() if hasattr(path, "values") else path or ()
    return [pattern for value in values for pattern in patterns(value)]


def is_local(path: str) -> bool:
    """Returns whether a path is a local path, and not a URL such as `gs://…`."""
    return "://" not in path
