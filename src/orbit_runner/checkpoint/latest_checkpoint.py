"""Finds the checkpoints of a run, and selects the latest or another one. Imports no tensorflow.

This runner's checkpoints are in `checkpoints/`, Model Garden's in the run directory itself. Either
runner may have trained last, so the later step is the latest. Its files may be damaged: a resume
and the commands try the checkpoints that `list_checkpoints` returns, from the last one, until they
find an intact one.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from orbit_runner.checkpoint.directory import CHECKPOINT_FILE, CheckpointFolder, steps_by_rank
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import CHECKPOINTS, RunDirectory

BEST = "best"
NEWEST = "newest"
AVERAGE = "average"
PLAIN = "plain"


@dataclasses.dataclass(frozen=True)
class CheckpointLocation:
    """The location of a checkpoint."""

    folder: CheckpointFolder
    step: int
    above: str = ""  # What its name begins with, such as `checkpoints/`.

    @property
    def name(self) -> str:
        """Its path relative to the one that was searched: `checkpoints/ckpt-100`."""
        return f"{self.above}{self.prefix.name}"

    @property
    def prefix(self) -> Path:
        """The path without suffix, as TensorFlow expects it."""
        return self.folder.prefix(self.step)

    @property
    def is_best(self) -> bool:
        """Whether it is a best one, which has the averaged weights if the run keeps an average."""
        return self.prefix.name.startswith(f"{BEST}-")

    def record(self) -> CheckpointRecord | None:
        """Returns the record of the checkpoint, or None if it is Model Garden's.

        Raises `RunnerError` if the record cannot be read, or if the run has just removed it.
        """
        return self.folder.require_record(self.step)


def find_checkpoints(target: Path, best: str) -> list[CheckpointLocation]:
    """Returns the checkpoints at a path, those of the run itself first.

    `target` is a run directory, a directory of checkpoints, or the path of one checkpoint. `best`
    is the subdirectory of the run's best checkpoint. Raises `RunnerError` if there are no
    checkpoints.
    """
    if RunDirectory(target).checkpoints.is_dir():
        subdirs = dict.fromkeys([CHECKPOINTS, best, BEST])
        places = [place for name in subdirs for place in _find_in_folder(target / name, f"{name}/")]
    elif target.is_dir():
        places = [*_find_in_folder(target, "")]
    else:
        places = [*_find_one(target)]
    if not places:
        there = "contains no checkpoint" if target.exists() else "does not exist"
        raise RunnerError(
            f"{target} {there}\n"
            "allowed: a run directory, a directory of checkpoints, or one checkpoint, such as "
            "runs/a/checkpoints/ckpt-100",
            path="RUN",
            code="no-checkpoint",
        )
    return places


def _find_in_folder(path: Path, above: str) -> Iterator[CheckpointLocation]:
    matches = (CHECKPOINT_FILE.fullmatch(file.name) for file in path.glob("*-*.*"))
    for name in sorted({match[1] for match in matches if match}):
        directory = CheckpointFolder(path, name=name)
        yield from (CheckpointLocation(directory, step, above) for step in directory.steps())


def _find_one(prefix: Path) -> Iterator[CheckpointLocation]:
    names = (prefix.name, f"{prefix.name}.index")
    match = next(filter(None, map(CHECKPOINT_FILE.fullmatch, names)), None)
    if match is None:
        return
    directory = CheckpointFolder(prefix.parent, name=match["name"])
    step = int(match["step"])
    if directory.files(step):
        yield CheckpointLocation(directory, step)


def checkpoints_of(run: Path) -> CheckpointFolder:
    """Returns the directory of a run's checkpoints."""
    return CheckpointFolder(RunDirectory(run).checkpoints)


def list_checkpoints(
    own: CheckpointFolder, *, unfinished: bool = False
) -> list[CheckpointLocation]:
    """Returns the checkpoints of a run, sorted by step.

    If both runners have a checkpoint of a step, this runner's comes last. With `unfinished`, this
    runner's checkpoints without an index are included.
    """
    theirs = CheckpointFolder(own.path.parent)
    steps = own.steps() if unfinished else own.committed_steps()
    places = [CheckpointLocation(theirs, step) for step in theirs.committed_steps()]
    places += [CheckpointLocation(own, step, f"{own.path.name}/") for step in steps]
    return sorted(places, key=lambda place: place.step)


def latest_intact_record(
    directory: CheckpointFolder, at_most: int | None = None
) -> CheckpointRecord | None:
    """Returns the record of the latest intact checkpoint of this runner, or None.

    Ignores checkpoints without a record and steps after `at_most`. Changes nothing on the disk.
    """
    steps = [step for step in directory.steps() if at_most is None or step <= at_most]
    for step in reversed(steps):
        with contextlib.suppress(OSError, ValueError):  # A run in training may remove it.
            record = directory.record(step) if directory.problem(step) is None else None
            if record is not None:
                return record
    return None


def choose_checkpoint(
    run: Path, requested: str | None, best: str, note: Callable[[str], None]
) -> CheckpointLocation:
    """Returns a checkpoint of a run after checking that its files are intact.

    `requested` is a step, `newest`, `best` or a path; None for the best checkpoint if the run keeps
    an intact one, and the newest intact one otherwise. The argument `best` is the subdirectory of
    the run's best checkpoint, or "" if the run keeps none. `note` is called with a warning for each
    damaged checkpoint that is ignored. Raises `RunnerError` if there is no such checkpoint, or if
    it is damaged.
    """
    checkpoints = checkpoints_of(run)
    name = best or BEST
    directory = CheckpointFolder(run / name, name=BEST)
    places = [CheckpointLocation(directory, n, f"{name}/") for n in steps_by_rank(directory)]
    if requested is None and best:
        with contextlib.suppress(RunnerError):
            return _select_newest(places, directory.path, note)
    if requested in (None, NEWEST):
        return _select_newest(list_checkpoints(checkpoints), checkpoints.path, note)
    if requested == BEST:
        if not places:
            raise RunnerError(
                f"there is no best checkpoint in {run / name}\n"
                "a run keeps one only if trainer.best_checkpoint_export_subdir is set",
                path="--checkpoint",
                code="no-checkpoint",
            )
        return _select_newest(places, directory.path, note)
    if requested.isdecimal():
        place = _find_by_step(checkpoints, int(requested))
    else:
        place = _find_by_path(run, requested, name)
    problem = place.folder.problem(place.step)
    if problem is not None:
        raise RunnerError(f"{place.name} {problem}", path="--checkpoint", code="damaged-checkpoint")
    return place


def _select_newest(
    places: list[CheckpointLocation], where: Path, note: Callable[[str], None]
) -> CheckpointLocation:
    for place in reversed(places):
        problem = place.folder.problem(place.step)
        if problem is None:
            return place
        if not problem.is_gone:
            note(f"warning: {place.name} is damaged and ignored: {problem.reason}")
    if not places:
        raise RunnerError(
            f"no checkpoint found in {where}\n"
            "train first (`runner --experiment=… --model_dir=…`), or specify another run directory",
            path="RUN",
            code="no-checkpoint",
        )
    raise RunnerError(
        f"no intact checkpoint is left in {where}\n"
        f"run `runner verify {where.parent}` to see how they are damaged",
        path="RUN",
        code="damaged-checkpoint",
    )


def _find_by_step(checkpoints: CheckpointFolder, step: int) -> CheckpointLocation:
    places = {place.step: place for place in list_checkpoints(checkpoints)}
    if step not in places:
        there = f"allowed: {', '.join(map(str, places))}" if places else "it has no checkpoints"
        raise RunnerError(
            f"got {step}, but {checkpoints.path} has no checkpoint of that step\n{there}",
            path="--checkpoint",
            code="unknown-step",
        )
    return places[step]


def _find_by_path(run: Path, requested: str, best: str) -> CheckpointLocation:
    """Finds a checkpoint by its path, relative to the working directory or the run directory."""
    for target in (Path(requested), run / requested):
        try:
            return _select_preferred(find_checkpoints(target, best))
        except RunnerError:
            continue
    raise RunnerError(
        f"no checkpoint found at {requested!r}, nor at that path in {run}\n"
        "allowed: a step, `newest`, `best`, or a path without suffix, such as "
        "runs/a/checkpoints/ckpt-100",
        path="--checkpoint",
        code="no-checkpoint",
    )


def _select_preferred(places: list[CheckpointLocation]) -> CheckpointLocation:
    """Returns the last of some checkpoints; the best one if the last is a best checkpoint."""
    last = places[-1]
    if not last.is_best:
        return last
    by_rank = steps_by_rank(last.folder)
    same = {place.step: place for place in places if place.folder is last.folder}
    return next((same[step] for step in reversed(by_rank) if step in same), last)


def choose_weights(requested: str | None, *, averages: bool, choice: CheckpointLocation) -> str:
    """Returns which weights of a checkpoint to use: `average` or `plain`.

    If `requested` is None, these are the ones that evaluation uses. Raises `RunnerError` if the
    checkpoint does not hold the weights.
    """
    if requested == AVERAGE and not averages:
        raise RunnerError(
            "got 'average', but this run has no average (set by "
            "trainer.optimizer_config.ema)\n"
            "allowed: 'plain'",
            path="--weights",
            code="not-allowed",
        )
    if requested == PLAIN and averages and choice.is_best:
        raise RunnerError(
            f"got 'plain', but {choice.name} contains only the averaged weights, "
            "which had the best result\n"
            "pass `newest` or a step to --checkpoint to use the plain weights of that step",
            path="--weights",
            code="not-allowed",
        )
    return requested or (AVERAGE if averages else PLAIN)
