"""Selects a checkpoint of a run, and which of its weights to use. Imports no tensorflow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder, steps_by_rank
from orbit_runner.checkpoint.latest_checkpoint import (
    BEST,
    CheckpointLocation,
    checkpoints_of,
    current_damage,
    find_checkpoints,
    list_checkpoints,
)
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.errors import RunnerError

AVERAGE = "average"
PLAIN = "plain"


@dataclasses.dataclass(frozen=True)
class Choice:
    """A checkpoint whose files are intact."""

    place: CheckpointLocation
    is_best: bool = False  # The best weights are already averaged if the run keeps an average.

    @property
    def prefix(self) -> str:
        """The path without suffix, as TensorFlow expects it."""
        return str(self.place.folder.prefix(self.place.step))

    def record(self) -> CheckpointRecord | None:
        """Returns the record of the checkpoint, or None if it is Model Garden's.

        Raises `RunnerError` if the record cannot be read, or if the run has just removed it.
        """
        try:
            return self.place.folder.record(self.place.step)
        except (OSError, ValueError) as error:
            raise RunnerError(
                f"the record of {self.prefix} cannot be read: {error}", code="damaged-checkpoint"
            ) from error


def choose_checkpoint(
    run: Path, requested: str | None, best: str, note: Callable[[str], None]
) -> Choice:
    """Returns a checkpoint of a run after checking that its files are intact.

    `requested` is a step, `best` or a path; None for the newest intact checkpoint. The argument
    `best` is the subdirectory of the run's best checkpoint, or "" if the run keeps none. `note` is
    called with a warning for each damaged checkpoint that is ignored. Raises `RunnerError` if there
    is no such checkpoint, or if it is damaged.
    """
    checkpoints = checkpoints_of(run)
    if requested is None:
        return Choice(_select_newest(list_checkpoints(checkpoints), checkpoints.path, note))
    if requested == BEST:
        name = best or BEST
        directory = CheckpointFolder(run / name, name=BEST)
        places = [
            CheckpointLocation(directory, step, f"{name}/{BEST}-{step}")
            for step in steps_by_rank(directory)
        ]
        if not places:
            raise RunnerError(
                f"there is no best checkpoint in {run / name}\n"
                "a run keeps one only if trainer.best_checkpoint_export_subdir is set",
                path="--checkpoint",
                code="no-checkpoint",
            )
        return Choice(_select_newest(places, directory.path, note), is_best=True)
    if requested.isdecimal():
        return Choice(_require_intact(_find_by_step(checkpoints, int(requested))))
    place = _require_intact(_find_by_path(run, requested, best or BEST))
    return Choice(place, is_best=Path(place.name).name.startswith(f"{BEST}-"))


def _select_newest(
    places: list[CheckpointLocation], where: Path, note: Callable[[str], None]
) -> CheckpointLocation:
    for place in reversed(places):
        damage = current_damage(place.folder, place.step)
        if damage == "":
            return place
        if damage:
            note(f"warning: {place.name} is damaged and ignored: {damage}")
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
        "allowed: a step, `best`, or a path without suffix, such as runs/a/checkpoints/ckpt-100",
        path="--checkpoint",
        code="no-checkpoint",
    )


def _select_preferred(places: list[CheckpointLocation]) -> CheckpointLocation:
    """Returns the last of some checkpoints; the best one if the last is a best checkpoint."""
    last = places[-1]
    if not Path(last.name).name.startswith(f"{BEST}-"):
        return last
    by_rank = steps_by_rank(last.folder)
    same = {place.step: place for place in places if place.folder is last.folder}
    return next((same[step] for step in reversed(by_rank) if step in same), last)


def _require_intact(place: CheckpointLocation) -> CheckpointLocation:
    damage = current_damage(place.folder, place.step)
    if damage != "":
        raise RunnerError(
            f"{place.name} is damaged: {damage or 'it no longer exists'}",
            path="--checkpoint",
            code="damaged-checkpoint",
        )
    return place


def choose_weights(requested: str | None, *, averages: bool, choice: Choice) -> str:
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
            f"got 'plain', but {choice.place.name} contains only the averaged weights, "
            "which had the best result\n"
            "pass a step to --checkpoint to use the plain weights of that step",
            path="--weights",
            code="not-allowed",
        )
    return requested or (AVERAGE if averages else PLAIN)
