"""Folders of exported models on the disk; imports no tensorflow."""

from __future__ import annotations

from pathlib import Path

# SavedModel's own place for files that TensorFlow itself does not read.
EXTRA = "assets.extra"
CONFIG, RECORD = "config.yaml", "export.json"
_MODEL = "saved_model.pb"


def find_export(path: Path) -> Path | None:
    """Finds an exported model.

    Args:
        path: Its folder, or one that holds a folder for each step, of which the last counts.

    Returns:
        The folder of the SavedModel; None where there is none.
    """
    if (path / _MODEL).is_file():
        return path
    found = [each for each in path.glob("*") if each.name.isdecimal() and (each / _MODEL).is_file()]
    return max(found, key=lambda each: int(each.name), default=None)
