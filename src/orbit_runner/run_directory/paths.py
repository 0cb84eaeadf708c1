"""`RunDirectory`: the paths of the files of a run."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner.errors import RunnerError
from orbit_runner.storage.paths import not_utf8_reason
from orbit_runner.utils.files import read_json_object

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

CHECKPOINTS = "checkpoints"
CONFIG = "config.yaml"
# A directory with one of these contains a run, or one that has just begun.
_OF_A_RUN = (".lock", CHECKPOINTS, "checkpoint", "metrics.jsonl", "run.json", "params.yaml")
# What only a run itself writes, as the first part of a path below its directory.
_OWN = re.compile(
    r"\.lock|\.cluster|config\.yaml|operative_config\.gin|params\.yaml|branch\.json|data\.json|"
    r"(run|trackers)(\..+)?\.json|code\.patch|metrics\.jsonl|report\.html|report_data|"
    r"assets|callbacks|checkpoints?|ckpt-.*|evaluations|train|validation|wandb"
)
# What may be in a new run directory before the run begins, such as a log that a shell has opened.
_NEUTRAL = re.compile(r"(?!\.git$)\..*|__pycache__|lost\+found|logs|config\.yaml|assets|best")
_MOST_FILES = 3
# The types of the values of a start. Values of other types are ignored.
_ATTEMPT_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("experiment", "mode", "started", "finished", "outcome", "weights"), str),
    **dict.fromkeys(("software", "code", "devices", "metrics"), dict),
    **dict.fromkeys(("best", "changes", "cluster"), dict),
    **dict.fromkeys(("argv", "inexact"), list),
}
_INTEGERS = ("step", "train_steps", "seed")


class _Place:
    """The path of a file or directory in a run directory."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, directory: RunDirectory, _: object) -> Path:
        return directory.path / self._path


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A run directory (`--model_dir`), and the paths of its files."""

    path: Path

    config = _Place(CONFIG)  # The resolved config, with the origin of each value.
    checkpoints = _Place(CHECKPOINTS)  # The directory of the checkpoints, named `ckpt-STEP`.
    # The fingerprints of every checkpoint ever saved, one per line.
    fingerprints = _Place(f"{CHECKPOINTS}/fingerprints.jsonl")
    metrics = _Place("metrics.jsonl")  # The records of training and evaluation, one per line.
    evaluations = _Place("evaluations")  # The results of `runner evaluate`, one file each.
    code_patch = _Place("code.patch")  # The uncommitted changes of the code at the last start.
    data = _Place("data.json")  # The record of the data files that the run has read.
    # What the run learned from its training data: classes, vocabularies.
    assets = _Place("assets")
    branch = _Place("branch.json")  # The run and step that a branch continues from.
    report = _Place("report.html")  # The report of the run as an HTML page.
    # What the report shows of the model, its inputs and its mistakes.
    report_data = _Place("report_data")

    def record(self, mode: str) -> Path:
        """Returns the path of the record of all starts: command, versions, devices, results.

        Each evaluation mode has its own record, because it may run beside training in the same
        directory.
        """
        return self.path / ("run.json" if mode.startswith("train") else f"run.{mode}.json")

    def attempts(self, mode: str) -> list[JsonObject]:
        """Returns the entries of the record of all starts; [] if it cannot be read."""
        try:
            attempts = read_json_object(self.record(mode))["attempts"]
        except (OSError, ValueError, KeyError):
            return []
        if not isinstance(attempts, list):
            return []
        return [_drop_unusable(attempt) for attempt in attempts if isinstance(attempt, dict)]

    def trackers(self, mode: str) -> Path:
        """Returns the path of the ids under which trackers know the run.

        Each evaluation mode has its own, like the record of starts.
        """
        return self.path / self.record(mode).name.replace("run", "trackers", 1)

    def require_config(self) -> Path:
        """Returns the path of the config; raises `RunnerError` if it does not exist."""
        if not self.config.is_file():
            problem = f"has no {CONFIG}" if self.path.is_dir() else "is not a directory"
            raise RunnerError(
                f"{self.path} {problem}\nspecify a run, such as runs/digits/a or one of a sweep; "
                "`runner runs DIR` lists those in a directory",
                path="RUN",
                code="not-a-run",
            )
        return self.config


def _drop_unusable(attempt: JsonObject) -> JsonObject:
    usable: JsonObject = {
        name: value
        for name, value in attempt.items()
        if isinstance(value, _ATTEMPT_TYPES.get(name, object))
        and (name not in _INTEGERS or as_integer(value) is not None)
    }
    if not isinstance(usable.get("devices", {}).get("gpus", []), list):
        del usable["devices"]
    return usable


def as_integer(value: Any) -> int | None:
    """Returns a step or a seed; None for values that no config allows."""
    is_valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32
    return value if is_valid else None


def own_part(path: str) -> str:
    """Returns the first part of a path below a run directory if only the run writes it, or ""."""
    first = os.path.normpath(path).partition("/")[0]
    return first if _OWN.fullmatch(first) else ""


def own_file_reason(path: str | Path) -> str:
    """Returns why nothing else may be written to a path: a run writes there itself, or "".

    A report may be written again.
    """
    absolute = os.path.realpath(path)
    for run in Path(absolute).parents:
        # Not methods of `Path`, which raise an error below a directory without permission.
        if not (os.path.isfile(run / CONFIG) and os.path.isdir(run / CHECKPOINTS)):
            continue
        part = os.path.relpath(absolute, run).partition("/")[0]
        # The directory of the best checkpoints has a name that a setting decides.
        has_checkpoints = os.path.isfile(run / part / "checkpoint")
        if part != "report.html" and (own_part(part) or has_checkpoints):
            return f"{path} is in {run / part}, which belongs to a run\nuse another path"
    return ""


def unsuitable_directory_reason(path: Path) -> str:
    """Returns why a directory cannot become a run directory, with the way out; "" if it can.

    Its name must be UTF-8, and it is no part of another run. The root directory, a home directory,
    and a directory with other things are unsuitable, unless they contain a run already.
    """
    if reason := not_utf8_reason(path) or own_file_reason(path):
        return reason
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return ""  # It does not exist, or it cannot be read, which is reported when it is used.
    if any(name in names for name in _OF_A_RUN):
        return ""
    real = os.path.realpath(path)
    suggestion = os.path.join("" if real == "/" else path, "runs", "a")
    way_out = f"use a directory of its own, such as --model_dir={suggestion}"
    if real == "/":
        return f"{path} is the root directory, expected a directory for one run\n{way_out}"
    if real == os.path.realpath(os.path.expanduser("~")):
        return f"{path} is the home directory, expected a directory for one run\n{way_out}"
    others = [name for name in names if not _NEUTRAL.fullmatch(name)]
    directories = [f"{name}/" for name in others if os.path.isdir(os.path.join(path, name))]
    if not directories and len(others) <= _MOST_FILES:
        return ""
    first_names = (directories + [name for name in others if f"{name}/" not in directories])[:3]
    more = f" and {len(others) - len(first_names)} more" if len(others) > len(first_names) else ""
    return (
        f"{path} contains {', '.join(first_names)}{more}, but no run\n"
        f"its files would be mixed with those of the run; {way_out}"
    )
