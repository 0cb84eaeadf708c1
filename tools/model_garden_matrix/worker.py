"""Runs the stages of one experiment: `python -m …worker BACKEND NAME DIRECTORY`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from tools.model_garden_matrix.recipes import recipes
from tools.model_garden_matrix.stages import StageRecorder

BACKENDS = ("orbit_runner", "reference")
NOTES = "stages.jsonl"


def main(backend: str, name: str, folder: Path) -> int:
    """Runs the stages of an experiment, and records them in the directory.

    Args:
        backend: `orbit_runner`, or `reference` for Model Garden's own runner.
        name: The registered name.
        folder: An existing empty directory.

    Returns:
        The exit code.
    """
    recorder = StageRecorder(folder / NOTES)
    try:
        module = importlib.import_module(f"tools.model_garden_matrix.{backend}_backend")
        module.run(name, lambda: _overrides(name, folder), folder, recorder.record_stage)
    except BaseException as error:
        recorder.record_failure(error)
        traceback.print_exc()
        return 1
    return 0


def _overrides(name: str, folder: Path) -> dict[str, Any]:
    found = recipes()
    if name not in found:
        raise LookupError(f"no recipe for {name}")
    data = folder / "data"
    data.mkdir()
    return found[name](data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
