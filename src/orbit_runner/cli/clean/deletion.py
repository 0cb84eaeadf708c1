"""Deletes what `runner clean` has shown, while no other process can train in the run."""

from __future__ import annotations

import contextlib
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, current_damage
from orbit_runner.cli.clean.rules import (
    Plan,
    Rules,
    average_folder,
    best_folder,
    best_steps_to_keep,
    find_items,
    make_plan,
    steps_to_keep,
)
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.run_directory.run_lock import RunLock
from orbit_runner.run_directory.run_summary import read_summary

_CHANGED = "the run has changed since it was listed; run the command again"


def delete_items(plan: Plan, rules: Rules) -> str:
    """Deletes what a plan lists. Returns "", or why nothing was deleted."""
    now = make_plan(read_summary(plan.run.path), rules)
    if now.untouched_reason:
        return now.untouched_reason
    if now.run.status != plan.run.status:
        return _CHANGED
    try:
        with RunLock(plan.run.path):
            return _delete_under_lock(plan, rules)
    except (RunnerError, OSError) as error:
        return first_line(error)


def _delete_under_lock(plan: Plan, rules: Rules) -> str:
    run, shown = plan.run.path, {name for item in plan.items for name in item.files}
    # The lock file exists because this process holds the lock.
    found = {name for item in find_items(run, rules) for name in item.files} - {".lock"}
    if not found <= shown:
        return _CHANGED
    if rules.delete_reason:
        _delete_files(run, sorted(found))
        return ""
    return _delete_checkpoints(run, rules)


def _delete_checkpoints(run: Path, rules: Rules) -> str:
    if rules.keep_last is not None:
        for folder in (CheckpointFolder(checkpoints_of(run).path, run=run), average_folder(run)):
            problem = _keep_only(folder, steps_to_keep(folder, rules.keep_last))
            if problem:
                return problem
    if rules.keep_best is not None:
        folder = best_folder(run)
        return _keep_only(folder, best_steps_to_keep(folder, rules.keep_best))
    return ""


def _keep_only(folder: CheckpointFolder, kept: list[int]) -> str:
    """Deletes all other checkpoints if one of those to keep is intact; returns why not, or ""."""
    if folder.path.is_symlink() or set(folder.steps()) <= set(kept):
        return ""
    if all(current_damage(folder, step) != "" for step in kept):
        return f"no intact checkpoint would be left in {folder.path}; run `runner verify` on it"
    folder.remove_others(kept)
    return ""


def _delete_files(run: Path, files: list[str]) -> None:
    """Deletes files of a run, then the directories that are empty, and the lock file last.

    The file without which a directory is not a run is deleted second to last: if this process is
    killed, the run is listed and can be deleted again.
    """
    last = ("run.json", ".lock")
    for name in [*(name for name in files if name not in last), *last]:
        if not name.endswith("/"):
            (run / name).unlink(missing_ok=True)
    above = {path for name in files for path in (run / f"{name}x").parents}
    inside = [path for path in above if path.is_relative_to(run)]
    for directory in sorted(inside, key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError):  # It is not empty.
            directory.rmdir()
