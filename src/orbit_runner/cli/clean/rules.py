"""The rules of `runner clean`: what would be deleted of a run, and why. Deletes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import BEST, checkpoints_of
from orbit_runner.checkpoint.ranking import steps_by_rank
from orbit_runner.cli.clean.known_files import best_directory, list_run_files
from orbit_runner.run_directory.run_lock import read_holder
from orbit_runner.run_directory.run_summary import RunSummary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What to delete of each selected run."""

    keep_last: int | None = None  # The number of newest checkpoints to keep; None: all.
    keep_best: int | None = None  # The number of best checkpoints to keep; None: all.
    delete_reason: str = ""  # Why to delete the whole run directory; "" to keep it.


@dataclasses.dataclass(frozen=True)
class Item:
    """Something to delete in a run directory."""

    label: str  # Such as `3 checkpoints: 100, 200, 300`.
    reason: str
    files: tuple[str, ...]  # Relative to the run directory.
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be deleted of a run."""

    run: RunSummary
    items: tuple[Item, ...] = ()
    unknown_files: tuple[
        str, ...
    ] = ()  # Files that remain of a deleted run, because they are unknown.
    untouched_reason: str = ""  # Why nothing of the run may be deleted.

    @property
    def bytes(self) -> int:
        """The size of everything to delete."""
        return sum(item.bytes for item in self.items)


def make_plan(run: RunSummary, rules: Rules) -> Plan:
    """Returns what would be deleted of a run."""
    reason = _find_obstacle(run)
    if reason:
        return Plan(run=run, untouched_reason=reason)
    return Plan(
        run=run, items=find_items(run.path, rules), unknown_files=_unknown_files(run.path, rules)
    )


def find_items(run: Path, rules: Rules) -> tuple[Item, ...]:
    """Returns what the rules delete of a run, without asking whether another process uses it."""
    if rules.delete_reason:
        files = list_run_files(run).known
        return (Item("the run directory", rules.delete_reason, files, _total_size(run, files)),)
    return tuple(item for item in _find_surplus_items(run, rules) if item is not None)


def _unknown_files(run: Path, rules: Rules) -> tuple[str, ...]:
    return list_run_files(run).unknown if rules.delete_reason else ()


def _find_obstacle(run: RunSummary) -> str:
    """Returns why nothing of a run may be deleted, or ""."""
    if run.path.is_symlink():
        return "it is a symbolic link"
    holder = read_holder(run.path)
    if holder is None:
        return ""
    if holder.host == "":
        return "another process is training in it"
    # Whether a process on another machine still runs cannot be determined. A run that recorded its
    # end has ended, though its process may have kept the lock until it exited.
    if run.status in ("running", "lost"):
        return f"a process on {holder.host} may be training in it; if not, remove {run.path}/.lock"
    return ""


def steps_to_keep(folder: CheckpointFolder, count: int) -> list[int]:
    """Returns the newest complete checkpoints, and those after them, in ascending order."""
    complete = folder.committed_steps()
    if not complete:
        return folder.steps()
    first = complete[-count:][0]
    return [step for step in folder.steps() if step >= first]


def best_steps_to_keep(folder: CheckpointFolder, count: int) -> list[int]:
    """Returns the best checkpoints, the best one last."""
    return steps_by_rank(folder)[-count:]


def best_folder(run: Path) -> CheckpointFolder:
    """Returns the directory of a run's best checkpoints."""
    return CheckpointFolder(run / best_directory(run), name=BEST)


def average_folder(run: Path) -> CheckpointFolder:
    """Returns the directory of averaged weights that a run of Model Garden's experiments has."""
    return CheckpointFolder(run / "ema_checkpoints", name="average_weights")


def _find_surplus_items(run: Path, rules: Rules) -> Iterator[Item | None]:
    if rules.keep_last is not None:
        last, why = rules.keep_last, f"older than the last {rules.keep_last}"
        for folder, noun in ((checkpoints_of(run), "checkpoint"), (average_folder(run), "average")):
            yield _make_surplus_item(run, folder, steps_to_keep(folder, last), noun, why)
    if rules.keep_best is not None:
        folder, why = best_folder(run), f"not among the best {rules.keep_best}"
        yield _make_surplus_item(
            run, folder, best_steps_to_keep(folder, rules.keep_best), "best checkpoint", why
        )


def _make_surplus_item(
    run: Path,
    folder: CheckpointFolder,
    kept: Sequence[int],
    noun: str,
    reason: str,
) -> Item | None:
    if folder.path.is_symlink() or not folder.path.is_dir():
        return None
    surplus = [step for step in folder.steps() if step not in kept]
    if not surplus:
        return None
    files = tuple(
        path.relative_to(run).as_posix() for step in surplus for path in folder.files(step)
    )
    label = f"{len(surplus)} {noun}{'s' if len(surplus) > 1 else ''}: {_format_steps(surplus)}"
    return Item(label, reason, files, _total_size(run, files))


def _format_steps(steps: Sequence[int]) -> str:
    shown = [f"{step:,}" for step in steps]
    return ", ".join(shown) if len(shown) <= 3 else f"{shown[0]} … {shown[-1]}"


def _total_size(run: Path, files: Sequence[str]) -> int:
    total = 0
    for name in files:
        try:
            total += (run / name).lstat().st_size
        except OSError:
            continue
    return total
