"""Settings as short texts, for tables and charts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orbit_runner.config.serialize import inline_yaml


def short_setting_names(paths: Iterable[str]) -> dict[str, str]:
    """Returns the last parts of dotted paths, as many as are needed to tell them apart."""
    parts = {path: path.split(".") for path in paths}
    names = {}
    for path, words in parts.items():
        for count in range(1, len(words) + 1):
            name = ".".join(words[-count:])
            others = (other for other in parts if other != path)
            if not any(f".{other}".endswith(f".{name}") for other in others):
                break
        names[path] = name
    return names


def value_text(value: Any) -> str:
    """Returns the value of a setting on one line; a float with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else inline_yaml(value)


def cut_middle(text: str, most: int) -> str:
    """Returns a text of at most `most` characters; the middle of a longer one is left out."""
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}…{text[len(text) - (most - head - 1) :]}"
