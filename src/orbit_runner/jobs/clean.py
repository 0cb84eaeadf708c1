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


def steps_to_keep(checkpoints: CheckpointFolder, count: int) -> list[int]:
    """Returns the newest complete checkpoints, and those after them, in ascending order."""
    complete = checkpoints.committed_steps()
    if not complete:
        return checkpoints.steps()
    first = complete[-count:][0]
    return [step for step in checkpoints.steps() if step >= first]


def best_steps_to_keep(checkpoints: CheckpointFolder, count: int) -> list[int]:
    """Returns the best checkpoints, the best one last."""
    return steps_by_rank(checkpoints)[-count:]


def best_folder(run: Path) -> CheckpointFolder:
    """Returns the directory of a run's best checkpoints."""
    return CheckpointFolder(run / best_directory(run), name=BEST)


def average_folder(run: Path) -> CheckpointFolder:
    """Returns the directory of averaged weights that a run of Model Garden's experiments has."""
    return CheckpointFolder(run / "ema_checkpoints", name="average_weights")


def _find_surplus_items(run: Path, rules: Rules) -> Iterator[Item | None]:
    if rules.keep_last is not None:
        last = rules.keep_last
        why = f"older than the last {last}"
        for checkpoints, noun in (
            (checkpoints_of(run), "checkpoint"),
            (average_folder(run), "average"),
        ):
            yield _make_surplus_item(run, checkpoints, steps_to_keep(checkpoints, last), noun, why)
    if rules.keep_best is not None:
        checkpoints = best_folder(run)
        why = f"not among the best {rules.keep_best}"
        yield _make_surplus_item(
            run,
            checkpoints,
            best_steps_to_keep(checkpoints, rules.keep_best),
            "best checkpoint",
            why,
        )


def _make_surplus_item(
    run: Path,
    checkpoints: CheckpointFolder,
    kept: Sequence[int],
    noun: str,
    reason: str,
) -> Item | None:
    if checkpoints.path.is_symlink() or not checkpoints.path.is_dir():
        return None
    surplus = [step for step in checkpoints.steps() if step not in kept]
    if not surplus:
        return None
    files = tuple(
        path.relative_to(run).as_posix() for step in surplus for path in checkpoints.files(step)
    )
    label = f"{format_count(len(surplus), noun)}: {_format_steps(surplus)}"
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
    present = {name for item in find_items(run, rules) for name in item.files} - {".lock"}
    if not present <= shown:
        return _CHANGED
    if rules.delete_reason:
        _delete_files(run, sorted(present))
        return ""
    return _delete_checkpoints(run, rules)


def _delete_checkpoints(run: Path, rules: Rules) -> str:
    if rules.keep_last is not None:
        for checkpoints in (
            CheckpointFolder(checkpoints_of(run).path, run=run),
            average_folder(run),
        ):
            problem = _keep_only(checkpoints, steps_to_keep(checkpoints, rules.keep_last))
            if problem:
                return problem
    if rules.keep_best is not None:
        checkpoints = best_folder(run)
        return _keep_only(checkpoints, best_steps_to_keep(checkpoints, rules.keep_best))
    return ""


def _keep_only(checkpoints: CheckpointFolder, kept: list[int]) -> str:
    """Deletes all other checkpoints if one of those to keep is intact; returns why not, or ""."""
    if checkpoints.path.is_symlink() or set(checkpoints.steps()) <= set(kept):
        return ""
    if all(current_damage(checkpoints, step) != "" for step in kept):
        return (
            f"no intact checkpoint would be left in {checkpoints.path}; run `runner verify` on it"
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
