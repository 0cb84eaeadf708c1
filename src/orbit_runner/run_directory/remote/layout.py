"""Which files of a run directory belong together, and in which order they may be written."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

_CHECKPOINT_FILE = re.compile(r"((?:.*/)?[^/]+)-(\d+)\.(index|json|data-\d+-of-\d+)")
_EXPORTED = ("/saved_model.pb", "/model.tflite", "/model.onnx", "/model.keras")
_EVENTS = "events.out.tfevents"
POINTER = "checkpoint"
# Files that a process appends to. They are uploaded with each checkpoint, and periodically.
_APPENDED = (".jsonl", ".stderr", ".log")


@dataclasses.dataclass(frozen=True, order=True)
class CheckpointFiles:
    """The files of one checkpoint, which is complete once its index exists."""

    step: int
    series: str  # Its path without step and suffix, such as `checkpoints/ckpt`.

    @property
    def index(self) -> str:
        """The name of the index file, which completes the checkpoint."""
        return f"{self.series}-{self.step}.index"

    def sort_files(self, names: Iterable[str]) -> list[str]:
        """Returns the checkpoint's files in the order in which they are written: the index last."""
        return sorted(names, key=lambda name: (name == self.index, name.endswith(".json"), name))


def group_of(name: str) -> CheckpointFiles | None:
    """Returns the checkpoint that a file belongs to; None for any other file.

    `name` is relative to the run directory.
    """
    match = _CHECKPOINT_FILE.fullmatch(name)
    return CheckpointFiles(int(match[2]), match[1]) if match else None


def groups_of(names: Iterable[str]) -> dict[CheckpointFiles, list[str]]:
    """Returns the checkpoints among files, complete or not, with the names of their files.

    A JSON file alone, such as `metrics-300.json`, is not a checkpoint.
    """
    found: dict[CheckpointFiles, list[str]] = {}
    for name in names:
        group = group_of(name)
        if group is not None:
            found.setdefault(group, []).append(name)
    return {
        group: group.sort_files(files)
        for group, files in sorted(found.items())
        if any(not name.endswith(".json") for name in files)
    }


def committed_groups(
    groups: Mapping[CheckpointFiles, list[str]],
) -> dict[CheckpointFiles, list[str]]:
    """Returns the checkpoints that have an index."""
    return {group: files for group, files in groups.items() if group.index in files}


def is_best(group: CheckpointFiles) -> bool:
    """Returns whether a checkpoint is one of the best; the newest of these may not be the best."""
    return PurePosixPath(group.series).name == "best"


def is_pointer(name: str) -> bool:
    """Returns whether a file names the newest checkpoint of its directory."""
    return PurePosixPath(name).name == POINTER


def is_appended(name: str) -> bool:
    """Returns whether processes append to a file, so that it changes continually."""
    return name.endswith(_APPENDED) or _EVENTS in name


def optional_files(names: Iterable[str]) -> set[str]:
    """Returns the files that a run can be resumed without: summaries, exports, logs."""
    names = [*names]
    exports = {PurePosixPath(name).parent for name in names if name.endswith(_EXPORTED)}
    return {
        name
        for name in names
        if _EVENTS in name
        or name.startswith(("logs/", "checkpoints/damaged/"))
        or not exports.isdisjoint(PurePosixPath(name).parents)
    }


def list_files(folder: Path) -> dict[str, os.stat_result]:
    """Returns the files of a run directory that belong to the run, by relative path.

    Two consecutive listings must agree: during a listing, a checkpoint may appear in a part that
    has already been read, and the previous one may disappear from a part that has not.
    """
    before = _list_once(folder)
    while True:
        now = _list_once(folder)
        if now.keys() == before.keys():
            return now
        before = now


def _list_once(folder: Path) -> dict[str, os.stat_result]:
    found = {}
    for above, folders, files in os.walk(folder):
        # Names that begin with a dot are local to this machine: locks, temporary files.
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in files:
            if file.startswith(".") or ".tempstate" in file:
                continue
            path = Path(above, file)
            try:
                found[path.relative_to(folder).as_posix()] = path.stat()
            except OSError:
                continue  # It has just been removed.
    return found
