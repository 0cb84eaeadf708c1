"""The stages of an experiment, and a file that records the result of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

STAGES = ("resolves", "builds", "trains", "evaluates")
OK = "ok"
STEPS = 2
ReportStage = Callable[[str], None]
_LONGEST = 300
_UNINFORMATIVE = re.compile(
    r"(Graph execution error|in user code|Detected at node|<stack traces|File \")"
)
_ERROR_NAME = re.compile(r"\w*(Error|Exception)\b.*: ")


class StageRecorder:
    """Records completed stages in a file, so that they are known even if the process crashes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record_stage(self, stage: str) -> None:
        """Records that a stage is complete. A stage may be recorded more than once."""
        self._write({stage: OK})

    def record_failure(self, error: BaseException) -> None:
        """Records why the next stage failed."""
        self._write({"reason": reason_of(error)})

    def _write(self, note: dict[str, str]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(note) + "\n")


def outcomes(notes: Path, ending: str) -> dict[str, str]:
    """Reads the result of each stage.

    Args:
        notes: The file; it may be missing.
        ending: How the process ended, used if the file contains no reason.

    Returns:
        For each stage: `ok`, the reason for its failure, or "" if it was not reached.
    """
    lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
    noted = {key: value for line in lines for key, value in json.loads(line).items()}
    made = {stage: noted.get(stage, "") for stage in STAGES}
    missing = [stage for stage in STAGES if made[stage] != OK]
    if missing:
        made |= dict.fromkeys(missing, "") | {missing[0]: noted.get("reason") or ending}
    return made


def count_done(made: dict[str, str]) -> int:
    """Returns the number of stages that an experiment completed."""
    return sum(outcome == OK for outcome in made.values())


def first_reason(made: dict[str, str]) -> str:
    """Returns why the first incomplete stage failed, or "" if all stages are complete."""
    return next((outcome for outcome in made.values() if outcome not in (OK, "")), "")


def reason_of(error: BaseException) -> str:
    """Returns an error as one line.

    TensorFlow's messages can fill pages: this is the line that contains the cause.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and _UNINFORMATIVE.match(lines[0]):
        named = [line for line in lines if _ERROR_NAME.match(line)]
        lines = named[-1:] or [line for line in lines if not _UNINFORMATIVE.match(line)][:1]
    kind = type(error).__name__
    text = " ".join(lines)[:_LONGEST] if _is_ours(error) else "".join(lines[:1])[:_LONGEST]
    return text if _is_ours(error) or _ERROR_NAME.match(text) else f"{kind}: {text}"


def strip_paths(text: str, folder: Path) -> str:
    """Removes paths of this machine from a text."""
    return re.sub(r"\S*/site-packages/", "", text.replace(str(folder), "FOLDER"))


def _is_ours(error: Any) -> bool:
    from orbit_runner.errors import RunnerError

    return isinstance(error, RunnerError)
