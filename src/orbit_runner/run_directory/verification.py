"""Checks whether the checkpoints of a run are unchanged."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from orbit_runner.checkpoint.latest_checkpoint import (
    BEST,
    CheckpointLocation,
    find_checkpoints,
)
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.errors import first_line, format_count
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.log import phase

# Takes a record's config fingerprint; returns whether it is that of the run's config.
SameConfig = Callable[[str], bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of checking one checkpoint."""

    name: str  # Relative to the run directory: `checkpoints/ckpt-100`.
    step: int
    weights: str = ""  # SHA-256 of the weights on the disk; "" if they were not read.
    state: str = ""  # The same for everything in the checkpoint.
    recorded: bool = True  # Whether it has a record; Model Garden's checkpoints have none.
    damage: str = ""  # What is wrong with it, or "".
    non_finite: str = ""  # The first weight, slot or average that is not finite, or "".
    other_config: bool = False  # Whether its config is not the run's `config.yaml`.
    unfinished: bool = False  # Whether it was being written or removed, and has no index.

    @property
    def is_intact(self) -> bool:
        """Whether no problem was found."""
        return not (self.damage or self.non_finite or self.other_config)


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of checking a run."""

    verdicts: tuple[Verdict, ...]  # Those of the best checkpoints come last.
    config_problem: str = ""  # Why `config.yaml` does not load; "" if it does or does not exist.

    @property
    def is_intact(self) -> bool:
        """Whether everything is as it was written."""
        return not self.config_problem and all(verdict.is_intact for verdict in self.verdicts)


def verify(target: Path) -> Verification:
    """Compares checkpoints with their records: first the files, then the tensors in them.

    `target` is a run directory, a directory of checkpoints, or the path of a checkpoint without
    suffix. Imports tensorflow only if the files of a checkpoint are intact. Raises `RunnerError` if
    there are no checkpoints.
    """
    same_config, problem, best = _load_config_check(_run_of(target))
    places = find_checkpoints(target, best)
    count = format_count(len(places), "checkpoint")
    phase(f"reading the files of {count}")
    checked = [
        (place, verdict) for place in places if (verdict := _check_files(place, same_config))
    ]
    verdicts = [verdict for _, verdict in checked]
    if not all(verdict.damage or verdict.unfinished for verdict in verdicts):
        phase("importing tensorflow")
        import orbit_runner.checkpoint.fingerprint  # noqa: F401

        phase(f"reading the tensors of {count}")
        verdicts = [now for place, verdict in checked if (now := _check_tensors(place, verdict))]
    return Verification(tuple(verdicts), problem)


def _run_of(target: Path) -> Path | None:
    """Returns the run directory of a path, which holds `config.yaml`, or None."""
    directories = [target, target.parent] if target.is_dir() else [*target.parents][:2]
    return next(
        (directory for directory in directories if RunDirectory(directory).config.is_file()), None
    )


def _load_config_check(run: Path | None) -> tuple[SameConfig, str, str]:
    """Returns the config check, the config error or "", and the directory of the best."""
    if run is None:
        return lambda fingerprint: True, "", BEST
    try:
        config = resolve(Request(experiment=str(RunDirectory(run).config))).config
    except ConfigError as error:
        return lambda fingerprint: True, str(error), BEST
    same = functools.cache(functools.partial(is_made_with, run, config=config))
    return same, "", config.trainer.best_checkpoint_export_subdir or BEST


def _check_files(place: CheckpointLocation, same_config: SameConfig) -> Verdict | None:
    problem = place.folder.problem(place.step)
    if problem is not None and problem.is_gone:
        return None
    verdict = Verdict(name=place.name, step=place.step)
    if problem is not None and place.folder.is_unfinished(place.step):
        return dataclasses.replace(verdict, unfinished=True)
    if problem is not None:
        return dataclasses.replace(verdict, damage=problem.reason)
    try:
        record = place.folder.record(place.step)
    except (OSError, ValueError):
        return None  # A run that is still training has just removed it.
    if record is None:
        return dataclasses.replace(verdict, recorded=False)
    return dataclasses.replace(verdict, other_config=not same_config(record.config))


def _check_tensors(place: CheckpointLocation, verdict: Verdict) -> Verdict | None:
    if verdict.damage or verdict.unfinished:
        return verdict
    from orbit_runner.checkpoint.fingerprint import READ_ERRORS, CheckpointContent
    from orbit_runner.checkpoint.finite_check import describe_non_finite

    try:
        content = CheckpointContent(place.prefix).summary()
        record = place.folder.record(place.step)
    except READ_ERRORS as error:
        if place.step not in place.folder.steps():
            return None
        return dataclasses.replace(verdict, damage=f"cannot be read: {first_line(error)}")
    known = record.non_finite if record is not None else ()
    non_finite = [tensor for tensor in content.non_finite if tensor.name not in known]
    checked = dataclasses.replace(
        verdict,
        weights=content.weights,
        state=content.state,
        non_finite=describe_non_finite(non_finite),
    )
    if record is None:
        return checked
    pairs = [("weights", content.weights, record.weights), ("state", content.state, record.state)]
    words = [
        f"{what} {on_disk[:12]} on disk, {str(recorded)[:12] or 'none'} in its record"
        for what, on_disk, recorded in pairs
        if on_disk != recorded
    ]
    return dataclasses.replace(checked, damage="; ".join(words))
