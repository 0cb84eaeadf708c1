"""Which files of a run directory belong together, and in which order they may appear."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

_CHECKPOINT_FILE = re.compile(r"((?:.*/)?[^/]+)-(\d+)\.(index|json|data-\d+-of-\d+)")
_EVENTS = "events.out.tfevents"
POINTER = "checkpoint"
# Files that a process appends to. They are uploaded with each checkpoint, and now and then.
_APPENDED = (".jsonl", ".stderr", ".log")


@dataclasses.dataclass(frozen=True, order=True)
class Group:
    """The files of one checkpoint; its index makes it one.

    Attributes:
        step: Its step.
        series: Its path without step and suffix, such as `checkpoints/ckpt`.
    """

    step: int
    series: str

    @property
    def index(self) -> str:
        """The name of the file that commits it."""
        return f"{self.series}-{self.step}.index"

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Returns its files in the order in which they are written: the index last.

        Args:
            names: The names of its files.
        """
        return sorted(names, key=lambda name: (name == self.index, name.endswith(".json"), name))


def group_of(name: str) -> Group | None:
    """Returns the checkpoint that a file belongs to; None for any other file.

    Args:
        name: The name of the file, relative to the run directory.
    """
    match = _CHECKPOINT_FILE.fullmatch(name)
    return Group(int(match[2]), match[1]) if match else None


def groups_of(names: Iterable[str]) -> dict[Group, list[str]]:
    """Returns the checkpoints among files, whole or not.

    A JSON file alone, such as `metrics-300.json`, is not a checkpoint.

    Args:
        names: The names of the files.
    """
    found: dict[Group, list[str]] = {}
    for name in names:
        group = group_of(name)
        if group is not None:
            found.setdefault(group, []).append(name)
    return {
        group: group.in_order(files)
        for group, files in sorted(found.items())
        if any(not name.endswith(".json") for name in files)
    }


def committed_groups(groups: Mapping[Group, list[str]]) -> dict[Group, list[str]]:
    """Returns the checkpoints that have an index.

    Args:
        groups: Checkpoints, whole or not.
    """
    return {group: files for group, files in groups.items() if group.index in files}


def is_pointer(name: str) -> bool:
    """Returns whether a file names the newest checkpoint of its directory."""
    return PurePosixPath(name).name == POINTER


def is_appended(name: str) -> bool:
    """Returns whether a process appends to a file, so that it changes all the time."""
    return name.endswith(_APPENDED) or _EVENTS in name


def record_only(names: Iterable[str]) -> set[str]:
    """Returns the files that a run continues without: summaries, exports, logs.

    Args:
        names: The names of all files of the run.
    """
    names = [*names]
    exports = {PurePosixPath(n).parent for n in names if n.endswith("/saved_model.pb")}
    return {
        name
        for name in names
        if _EVENTS in name
        or name.startswith(("logs/", "checkpoints/damaged/"))
        or not exports.isdisjoint(PurePosixPath(name).parents)
    }


def list_files(folder: Path) -> dict[str, os.stat_result]:
    """Returns the files of a run directory that belong to the run, by name.

    Two listings have to agree: while one is being read, a checkpoint may appear where the listing
    has passed already, and the one before it disappear where it has not.

    Args:
        folder: The run directory.
    """
    before = _listing(folder)
    while True:
        now = _listing(folder)
        if now.keys() == before.keys():
            return now
        before = now


def _listing(folder: Path) -> dict[str, os.stat_result]:
    found = {}
    for above, folders, files in os.walk(folder):
        # Names that begin with a dot are of this machine: locks, files that are being written.
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
