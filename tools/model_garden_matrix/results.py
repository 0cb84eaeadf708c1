"""Results of experiments, one line of JSON each. The last line of an experiment counts."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.model_garden_matrix.stages import STAGES, count_done

DEFAULT = Path("runs/model_garden_matrix/results.jsonl")
PACKAGES = ("tensorflow", "tf_keras", "tf-models-official")
Result = dict[str, Any]


def versions() -> dict[str, str]:
    """Returns the versions that a result depends on."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, **{package: version(package) for package in PACKAGES}}


def read(path: Path) -> dict[str, Result]:
    """Returns the last result of each experiment for the installed versions, by name."""
    here = versions()
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results = [json.loads(line) for line in _complete_lines(lines)]
    return {result["name"]: result for result in results if result["versions"] == here}


def append(path: Path, result: Result) -> None:
    """Appends a result to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")


def is_complete(result: Result) -> bool:
    """Returns whether an experiment completed all stages."""
    return count_done(result["outcomes"]) == len(STAGES)


def _complete_lines(lines: Iterable[str]) -> Iterable[str]:
    # Ignores a line that is incomplete because the process was killed.
    return (line for line in lines if line.endswith("}"))
