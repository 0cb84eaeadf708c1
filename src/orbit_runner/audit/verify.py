"""Whether the checkpoints of a run are still what they were when they were written."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_runner.checkpoint.discovery import BEST, Place, damage_now, find_places
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.errors import first_line
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.log import phase

# Whether a checkpoint whose record has a fingerprint was made with the config of the run.
SameConfig = Callable[[str], bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was found of one checkpoint.

    Attributes:
        name: The checkpoint, from the folder of the run: `checkpoints/ckpt-100`.
        step: Its step.
        weights: SHA-256 of the weights on the disk; "" where they were not read.
        state: The same of all that the checkpoint holds.
        recorded: Whether there is a record to compare with; a foreign checkpoint has none.
        damage: What is wrong with it; "" if nothing.
        non_finite: Its first weight, slot or average that is not finite; "" if all are.
        other_config: Whether it was made with another config than the run's `config.yaml`.
        unfinished: Whether it was being written or removed, and has no index.
    """

    name: str
    step: int
    weights: str = ""
    state: str = ""
    recorded: bool = True
    damage: str = ""
    non_finite: str = ""
    other_config: bool = False
    unfinished: bool = False

    @property
    def well(self) -> bool:
        """Whether nothing speaks against it."""
        return not (self.damage or self.non_finite or self.other_config)


@dataclasses.dataclass(frozen=True)
class Verification:
    """What was found of a run.

    Attributes:
        verdicts: One for each checkpoint, those of `best/` last.
        config_problem: Why `config.yaml` does not load; "" where it does, or where there is none.
    """

    verdicts: tuple[Verdict, ...]
    config_problem: str = ""

    @property
    def well(self) -> bool:
        """Whether all is as it was written."""
        return not self.config_problem and all(verdict.well for verdict in self.verdicts)


def verify(target: Path) -> Verification:
    """Compares checkpoints with their records: first the files, then the tensors in them.

    Tensorflow is imported only if there is a checkpoint whose files are whole.

    Args:
        target: The folder of a run, a folder of checkpoints, or the path of one without suffix.

    Returns:
        What was found.

    Raises:
        RunnerError: There are no checkpoints.
    """
    same_config, problem, best = _config(_run_of(target))
    places = find_places(target, best)
    count = f"{len(places)} checkpoint{'s' if len(places) > 1 else ''}"
    phase(f"reading the files of {count}")
    found = [(place, verdict) for place in places if (verdict := _check_files(place, same_config))]
    verdicts = [verdict for _, verdict in found]
    if not all(verdict.damage or verdict.unfinished for verdict in verdicts):
        phase("importing tensorflow")
        import orbit_runner.checkpoint.fingerprint  # noqa: F401

        phase(f"reading the tensors of {count}")
        verdicts = [now for place, verdict in found if (now := _check_tensors(place, verdict))]
    return Verification(tuple(verdicts), problem)


def _run_of(target: Path) -> Path | None:
    """Returns the folder that holds `config.yaml`; of a part of a run too."""
    folders = [target, target.parent] if target.is_dir() else [*target.parents][:2]
    return next((folder for folder in folders if RunDirectory(folder).config.is_file()), None)


def _config(run: Path | None) -> tuple[SameConfig, str, str]:
    """Returns what compares configs, what is wrong with this one, and the folder of the best."""
    if run is None:
        return lambda fingerprint: True, "", BEST
    try:
        config = resolve(Request(experiment=str(RunDirectory(run).config))).config
    except ConfigError as error:
        return lambda fingerprint: True, str(error), BEST
    same = functools.cache(functools.partial(is_made_with, run, config=config))
    return same, "", config.trainer.best_checkpoint_export_subdir or BEST


def _check_files(place: Place, same_config: SameConfig) -> Verdict | None:
    damage = damage_now(place.folder, place.step)
    if damage is None:
        return None
    verdict = Verdict(name=place.name, step=place.step, damage=damage)
    if damage and place.folder.is_unfinished(place.step):
        return dataclasses.replace(verdict, damage="", unfinished=True)
    if damage:
        return verdict
    try:
        record = place.folder.record(place.step)
    except (OSError, ValueError):
        return None  # The run that goes on has just removed it.
    if record is None:
        return dataclasses.replace(verdict, recorded=False)
    if record.step != place.step:
        return dataclasses.replace(verdict, damage=f"its record is that of step {record.step}")
    return dataclasses.replace(verdict, other_config=not same_config(record.config))


def _check_tensors(place: Place, verdict: Verdict) -> Verdict | None:
    if verdict.damage or verdict.unfinished:
        return verdict
    import tensorflow as tf

    from orbit_runner.checkpoint.fingerprint import CheckpointContent
    from orbit_runner.checkpoint.finite_check import describe_non_finite

    try:
        if not verdict.recorded and not _has_graph(place):
            return verdict
        content = CheckpointContent(place.folder.prefix(place.step)).summary()
        record = place.folder.record(place.step)
    except (OSError, ValueError, IndexError, RuntimeError, tf.errors.OpError) as error:
        if place.step not in place.folder.steps():
            return None
        return dataclasses.replace(verdict, damage=f"cannot be read: {first_line(error)}")
    known = (record.non_finite if record is not None else None) or ()
    non_finite = [one for one in content.non_finite if one.name not in known]
    found = dataclasses.replace(
        verdict,
        weights=content.weights,
        state=content.state,
        non_finite=describe_non_finite(non_finite),
    )
    if record is None:
        return found
    pairs = [("weights", content.weights, record.weights), ("state", content.state, record.state)]
    return dataclasses.replace(found, damage=_differing(pairs))


def _has_graph(place: Place) -> bool:
    """Reads each tensor of a foreign checkpoint, and says whether it names objects at all."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(place.folder.prefix(place.step)))
    for key in reader.get_variable_to_shape_map():
        reader.get_tensor(key)  # TensorFlow compares checksums of its own.
    return bool(reader.has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))


def _differing(pairs: Sequence[tuple[str, str, str]]) -> str:
    words = [
        f"{what} {found[:12]} on the disk, {str(noted)[:12] or 'none'} in its record"
        for what, found, noted in pairs
        if found != noted
    ]
    return "; ".join(words)
