"""The files that a process has imported, and whether they have changed since."""

from __future__ import annotations

import os
import sys

_Stamp = tuple[int, int]


class LoadedFiles:
    """The files of the modules that are loaded now."""

    def __init__(self) -> None:
        # Not `module.__file__`: some modules are only imported when they are asked for a name.
        files = (vars(module).get("__file__") for module in [*sys.modules.values()])
        names = {file for file in files if isinstance(file, str)}
        self._stamps = {name: _stamp(name) for name in names}

    def changed_file(self) -> str:
        """Returns a file that was written or deleted since, or "" if there is none."""
        return next((name for name, before in self._stamps.items() if _stamp(name) != before), "")


def _stamp(name: str) -> _Stamp | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
