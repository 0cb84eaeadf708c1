"""Decides what `runner clean` deletes of a run, and deletes what it has shown.

Nothing is deleted while another process may train in the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder, steps_by_rank
from orbit_runner.checkpoint.latest_checkpoint import BEST, checkpoints_of, current_damage
from orbit_runner.errors import RunnerError, first_line, format_count
from orbit_runner.run_directory.config import read_setting
from orbit_runner.run_directory.paths import CHECKPOINTS
from orbit_runner.run_directory.run_lock import RunLock, read_holder
from orbit_runner.run_directory.run_summary import RunSummary, read_summary, tracker_directories
from orbit_runner.serving.formats import saved_model
from orbit_runner.serving.formats.base import network_formats

_FILES = (
    r"branch\.json|config\.yaml|operative_config\.gin|run(\.\w+)?\.json|trackers(\.\w+)?\.json|"
    r"data\.json|code(-\d+)?\.patch|report\.html|report_data/(model|inputs|evaluation)\.json|"
    r"evaluations/\d+-\d+-\d+(-\d+)?\.json|metrics\.jsonl|checkpoint|\.lock|bleu\.json|assets/[^/]+"
)
_CHECKPOINT = r"-\d+\.(index|json|data-\d+-of-\d+)"
_EVENTS = r"/(.+/)?events\.out\.tfevents\.[^/]+"
_CHANGED = "the run has changed since it was listed; run the command again"


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """The files in a run directory, with paths relative to it."""

    known: tuple[str, ...]  # Includes empty directories, which end in a slash.
    unknown: tuple[str, ...]


def best_directory(run: Path) -> str:
    """Returns the subdirectory of the best checkpoints; `best` if the config does not name it."""
    return str(read_setting(run, "trainer.best_checkpoint_export_subdir") or "best")


def list_run_files(run: Path) -> RunFiles:
    """Returns the files in a run directory and in the directories below it.

    A link to a directory is a file here: it is not followed, and deleting it deletes only the link.
    """
    pattern = _pattern(run)
    known: list[str] = []
    unknown: list[str] = []
    for above, directories, files in os.walk(run, followlinks=False):
        links = [name for name in directories if Path(above, name).is_symlink()]
        for name in (*links, *files):
            path = Path(above, name).relative_to(run).as_posix()
            (known if pattern.fullmatch(path) else unknown).append(path)
        directory = Path(above).relative_to(run).as_posix()
        if not directories and not files and pattern.fullmatch(f"{directory}/any"):
            known.append(f"{directory}/")
    return RunFiles(tuple(sorted(known)), tuple(sorted(unknown)))


def _pattern(run: Path) -> re.Pattern[str]:
    best = re.escape(best_directory(run))
    alternatives = [
        # A file that could not be read was renamed, and a killed process leaves temporary files.
        rf"({_FILES})(\.damaged(-\d+)?)?|\.({_FILES})\.\d+",
        rf"ckpt{_CHECKPOINT}",
        rf"{CHECKPOINTS}/(ckpt{_CHECKPOINT}|checkpoint|fingerprints\.jsonl)",
        rf"{CHECKPOINTS}/(configs|damaged|\.writing-\d+)/.+",
        rf"{best}/(best{_CHECKPOINT}|checkpoint|info\.json(\.damaged(-\d+)?)?|\.writing-\d+/.+)",
        rf"ema_checkpoints/(average_weights{_CHECKPOINT}|checkpoint|\.writing-\d+/.+)",
        rf"(train|validation){_EVENTS}",
        r"train/plugins/profile/[^/]+/[^/]+\.xplane\.pb",
        r"\.assets-\d+/[^/]+",
        r"logs/(.+/)?[^/]+\.log|\.cluster/.+",
        rf"({'|'.join(map(re.escape, tracker_directories()))})/.+",
    ]
    exported = read_setting(run, "trainer.export_subdir")
    pattern = f"*/{saved_model.FORMAT.file}"
    for model in (run / str(exported)).glob(pattern) if exported else ():
        alternatives.append(rf"{re.escape(model.parent.relative_to(run).as_posix())}/.+")
    if exported:
        known = network_formats()
        models = "|".join({re.escape(kind.file) for kind in known.values()})
        files = rf"{models}|export\.json|config\.yaml|labels(_[^/]+)?\.txt|assets/[^/]+"
        alternatives.append(rf"{re.escape(str(exported))}/\d+-({'|'.join(known)})/({files})")
    return re.compile("|".join(alternatives))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What to delete of each run."""

    keep_last: int | None = None  # The number of newest checkpoints to keep; None: all.
    keep_best: int | None = None  # The number of best checkpoints to keep; None: all.
    delete_runs: bool = False  # Whether to delete the whole run directory.


@dataclasses.dataclass(frozen=True)
class Item:
    """Something to delete in a run directory."""

    label: str  # Such as `3 checkpoints: 100, 200, 300`.
    files: tuple[str, ...]  # Relative to the run directory.
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be deleted of a run."""

    run: RunSummary
    items: tuple[Item, ...] = ()
    unknown_files: tuple[str, ...] = ()  # What remains of a deleted run.
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
    unknown = list_run_files(run.path).unknown if rules.delete_runs else ()
    return Plan(run=run, items=_find_items(run.path, rules), unknown_files=unknown)


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


def _find_items(run: Path, rules: Rules) -> tuple[Item, ...]:
    """Returns what the rules delete of a run, without asking whether another process uses it."""
    if rules.delete_runs:
        files = list_run_files(run).known
        return (Item("the run directory", files, _total_size(run, files)),)
    items = []
    for checkpoints, kept, noun in _folders(run, rules):
        surplus = [step for step in checkpoints.steps() if step not in kept]
        if not surplus:
            continue
        files = tuple(
            path.relative_to(run).as_posix() for step in surplus for path in checkpoints.files(step)
        )
        label = f"{format_count(len(surplus), noun)}: {_format_steps(surplus)}"
        items.append(Item(label, files, _total_size(run, files)))
    return tuple(items)


def _folders(run: Path, rules: Rules) -> Iterator[tuple[CheckpointFolder, list[int], str]]:
    """Yields directories of checkpoints, each with the steps to keep, and what it contains."""
    if rules.keep_last is not None:
        newest = CheckpointFolder(checkpoints_of(run).path, run=run)
        # Of Model Garden's experiments.
        averages = CheckpointFolder(run / "ema_checkpoints", name="average_weights")
        for checkpoints, noun in ((newest, "checkpoint"), (averages, "average")):
            if _is_directory(checkpoints):
                yield checkpoints, _newest_steps(checkpoints, rules.keep_last), noun
    best = CheckpointFolder(run / best_directory(run), name=BEST)
    if rules.keep_best is not None and _is_directory(best):
        yield best, steps_by_rank(best)[-rules.keep_best :], "best checkpoint"


def _is_directory(checkpoints: CheckpointFolder) -> bool:
    return checkpoints.path.is_dir() and not checkpoints.path.is_symlink()


def _newest_steps(checkpoints: CheckpointFolder, count: int) -> list[int]:
    """Returns the newest complete checkpoints, and the incomplete ones after them."""
    complete = checkpoints.committed_steps()
    if not complete:
        return checkpoints.steps()
    return [step for step in checkpoints.steps() if step >= complete[-count:][0]]


def _format_steps(steps: Sequence[int]) -> str:
    shown = [f"{step:,}" for step in steps]
    return ", ".join(shown) if len(shown) <= 3 else f"{shown[0]} … {shown[-1]}"


def _total_size(run: Path, files: Sequence[str]) -> int:
    total = 0
    for name in files:
        with contextlib.suppress(OSError):
            total += (run / name).lstat().st_size
    return total


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
    run = plan.run.path
    shown = {name for item in plan.items for name in item.files}
    # The lock file exists because this process holds the lock.
    present = {name for item in _find_items(run, rules) for name in item.files} - {".lock"}
    if not present <= shown:
        return _CHANGED
    if rules.delete_runs:
        _delete_files(run, sorted(present))
        return ""
    for checkpoints, kept, _ in _folders(run, rules):
        if set(checkpoints.steps()) <= set(kept):
            continue
        if all(current_damage(checkpoints, step) != "" for step in kept):
            return (
                f"no intact checkpoint would be left in {checkpoints.path}; run `runner verify` "
                "on it"
            )
        checkpoints.remove_others(kept)
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
