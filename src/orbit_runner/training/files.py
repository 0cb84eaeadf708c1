"""Files that appear whole or not at all, and what JSON can hold."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_whole(path: Path, text: str) -> None:
    """Writes a file aside, then renames it into its place.

    Args:
        path: The file; its folder is made.
        text: What it holds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def cut_records(path: Path, *, after: int) -> None:
    """Drops the records of steps after a given one from a file of JSON lines; keeps events.

    Args:
        path: The file; nothing is done where it does not exist.
        after: The last step whose records stay.
    """
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if _step(line) <= after]
    if kept != lines:
        write_whole(path, "".join(f"{line}\n" for line in kept))


def _step(line: str) -> float:
    try:
        record = json.loads(line)
        # What happened once, such as a divergence, is not about to happen again.
        return -1.0 if "event" in record else float(record["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # A line that a killed process left half written.


def jsonable(value: Any) -> Any:
    """Returns nested values as JSON can hold them: NaN and infinities become None.

    Args:
        value: Mappings, lists, texts, and numbers of Python or numpy.
    """
    if isinstance(value, Mapping):
        return {name: jsonable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, (np.floating, float)):
        # The shortest text that reads back as the same float32, not its float64 expansion.
        return float(str(value)) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
