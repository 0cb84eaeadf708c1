"""Directories of exported models. Imports no tensorflow."""

from __future__ import annotations

from pathlib import Path

# SavedModel's directory for files that TensorFlow itself does not read.
EXTRA = "assets.extra"
CONFIG, RECORD = "config.yaml", "export.json"
_MODEL = "saved_model.pb"


def find_export(path: Path) -> Path | None:
    """Returns the directory of a SavedModel, or None if there is none.

    `path` is that directory, or one with a subdirectory per step, of which the last step is used.
    """
    if (path / _MODEL).is_file():
        return path
    found = [each for each in path.glob("*") if each.name.isdecimal() and (each / _MODEL).is_file()]
    return max(found, key=lambda each: int(each.name), default=None)
