"""Decides which checkpoints `runner clean` deletes of a run, and deletes those it has shown.

Nothing is deleted while another process may train in the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from orbit_runner.checkpoint.directory import CheckpointFolder, steps_by_rank
from orbit_runner.checkpoint.latest_checkpoint import BEST, checkpoints_of
from orbit_runner.errors import RunnerError, first_line, format_count
from orbit_runner.run_directory.run_lock import RunLock, read_holder
from orbit_runner.run_directory.run_reader import RunReader


@dataclasses.dataclass(frozen=True)
class Item:
    """Something to delete in a run directory."""

    label: str  # Such as `3 checkpoints: 100, 200, 300`.
    files: tuple[str, ...]  # Relative to the run directory.
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be deleted of a run."""

    run: RunReader
    keep_last: int | None  # The number of newest checkpoints to keep; None: all.
    keep_best: int | None  # The number of best checkpoints to keep; None: all.
    items: tuple[Item, ...] = ()
    untouched_reason: str = ""  # Why nothing of the run may be deleted.

    @property
    def bytes(self) -> int:
        """The size of everything to delete."""
        return sum(item.bytes for item in self.items)


def make_plan(
    run: RunReader, *, keep_last: int | None = None, keep_best: int | None = None
) -> Plan:
    """Returns what would be deleted of a run."""
    plan = Plan(run=run, keep_last=keep_last, keep_best=keep_best)
    if reason := _find_obstacle(run):
        return dataclasses.replace(plan, untouched_reason=reason)
    return dataclasses.replace(plan, items=_find_items(plan))


def _find_obstacle(run: RunReader) -> str:
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


def _find_items(plan: Plan) -> tuple[Item, ...]:
    """Returns what a plan deletes, without asking whether another process uses the run."""
    items = []
    for checkpoints, kept, noun in _folders(plan):
        surplus = [step for step in checkpoints.steps() if step not in kept]
        files = [path for step in surplus for path in checkpoints.files(step)]
        if surplus:
            names = [f"{step:,}" for step in surplus]
            steps = ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]}"
            items.append(
                Item(
                    label=f"{format_count(len(surplus), noun)}: {steps}",
                    files=tuple(path.relative_to(plan.run.path).as_posix() for path in files),
                    bytes=sum(path.lstat().st_size for path in files),
                )
            )
    return tuple(items)


def _folders(plan: Plan) -> Iterator[tuple[CheckpointFolder, list[int], str]]:
    """Yields directories of checkpoints, each with the steps to keep, and what it contains."""
    run = plan.run.path
    newest = CheckpointFolder(checkpoints_of(run).path, run=run)
    if plan.keep_last is not None and _is_directory(newest):
        complete = newest.committed_steps()[-plan.keep_last :]
        # The incomplete ones after them stay, too.
        last = [step for step in newest.steps() if not complete or step >= complete[0]]
        yield newest, last, "checkpoint"
    subdirectory = str(plan.run.settings.get("trainer.best_checkpoint_export_subdir") or "best")
    best = CheckpointFolder(run / subdirectory, name=BEST)
    if plan.keep_best is not None and _is_directory(best):
        yield best, steps_by_rank(best)[-plan.keep_best :], "best checkpoint"


def _is_directory(checkpoints: CheckpointFolder) -> bool:
    return checkpoints.path.is_dir() and not checkpoints.path.is_symlink()


def delete_items(plan: Plan) -> str:
    """Deletes what a plan lists. Returns "", or why nothing was deleted."""
    try:
        with RunLock(plan.run.path):
            if _find_items(plan) != plan.items:
                return "the run has changed since it was listed; run the command again"
            for checkpoints, kept, _ in _folders(plan):
                if set(checkpoints.steps()) <= set(kept):
                    continue
                if all(checkpoints.problem(step) for step in kept):
                    return (
                        f"no intact checkpoint would be left in {checkpoints.path}; run "
                        "`runner verify` on it"
                    )
                checkpoints.remove_others(kept)
    except (RunnerError, OSError) as error:
        return first_line(error)
    return ""
