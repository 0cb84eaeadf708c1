"""`python -m official_matrix.one RUNNER NAME FOLDER`: an experiment by itself, in a process."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from official_matrix.recipes import recipes
from official_matrix.stages import Notes

RUNNERS = ("here", "there")
NOTES = "stages.jsonl"


def main(runner: str, name: str, folder: Path) -> int:
    """Takes an experiment through its stages and notes them in the folder.

    Args:
        runner: `here` for this runner, `there` for Model Garden's own.
        name: The name that it is registered under.
        folder: A folder that is there, and empty.

    Returns:
        The exit code.
    """
    notes = Notes(folder / NOTES)
    try:
        module = importlib.import_module(f"official_matrix.{runner}")
        module.run(name, lambda: _overrides(name, folder), folder, notes.reached)
    except BaseException as error:
        notes.failed(error)
        traceback.print_exc()
        return 1
    return 0


def _overrides(name: str, folder: Path) -> dict[str, Any]:
    found = recipes()
    if name not in found:
        raise LookupError(f"official_matrix has no recipe for {name}")
    data = folder / "data"
    data.mkdir()
    return found[name](data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
