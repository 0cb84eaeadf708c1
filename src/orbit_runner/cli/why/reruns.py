"""Runs two runs again to find the first step, and in it the first tensor, that differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import current_damage
from orbit_runner.cli.preflight import check_before_start
from orbit_runner.cli.reference_run import copy_checkpoint, leave_best_out
from orbit_runner.cli.single_process import convert_to_single_process
from orbit_runner.cli.why.side_pair import SidePair, side_pair_scope, temporary_scope
from orbit_runner.compare.explanation import Reruns
from orbit_runner.compare.histories import RunDiff
from orbit_runner.compare.records import RecordedRun
from orbit_runner.compare.step_records import (
    StepState,
    TensorDifference,
    find_first_step,
    first_difference,
    is_same,
)
from orbit_runner.data.fingerprint import compare
from orbit_runner.determinism.numerics_record import describe_changes
from orbit_runner.errors import RunnerError, first_line, format_list
from orbit_runner.run_directory.data_record import fingerprint_of
from orbit_runner.storage.staging import localize

Pair = tuple[RecordedRun, RecordedRun]
Phase = Callable[[str], None]


def rerun_both(runs: Pair, parting: RunDiff, imports: tuple[str, ...], phase: Phase) -> Reruns:
    """Runs both again from the last step at which they are equal, and returns where they differ.

    `parting` is where their records differ, and `phase` is called with what happens next. Raises
    `RunnerError` if one of them cannot be run again.
    """
    start, source = _find_start(runs, parting)
    end = _find_end(runs, parting)
    if end <= start:
        raise RunnerError("they have no steps in common")
    with temporary_scope() as folder:
        for name, run in zip("AB", runs, strict=True):
            directory = folder / name.lower()
            directory.mkdir()
            _check_can_rerun(name, run, directory)
            if source is not None:
                copy_checkpoint(source, start, directory)
                assert run.resolved is not None, "_check_can_rerun raises an error otherwise"
                leave_best_out(directory, run.resolved.config.trainer)
        phase(f"running both again from step {start} to {end}")
        with side_pair_scope(runs, folder, imports) as pair:
            return _compare(pair, runs, folder, start, end, phase)


def _check_can_rerun(name: str, run: RecordedRun, directory: Path) -> None:
    """Raises `RunnerError` if a run cannot be repeated."""
    if run.resolved is None:
        raise RunnerError(f"{name} cannot be run again: {run.problem}")
    try:
        resolved = convert_to_single_process(
            run.resolved, run.record.strategy if run.record else ""
        )
        check_before_start(resolved, run.history.mode, directory)
        now = fingerprint_of(localize(resolved.config).task)
    except RunnerError as error:
        raise RunnerError(f"{name} cannot be run again: {error}") from error
    changed = compare(run.data or {}, now).changes
    if changed:
        raise RunnerError(
            f"{name} cannot be run again: its data has changed since:\n{format_list(changed)}"
        )


def _find_start(runs: Pair, parting: RunDiff) -> tuple[int, CheckpointFolder | None]:
    """Returns the last step at which both are equal and one has a checkpoint, with its directory.

    Returns (0, None) if there is none.
    """
    left, right = (run.history.fingerprints for run in runs)
    last = -1 if parting.last_equal is None else parting.last_equal
    for step in sorted((one for one in parting.compared if one <= last), reverse=True):
        if left[step] == right[step]:
            for run in runs:
                folder = run.history.checkpoints
                is_there = step in folder.steps() and step not in run.edits
                if (
                    is_there
                    and current_damage(folder, step) == ""
                    and folder.record(step) is not None
                ):
                    return step, folder
    return 0, None


def _find_end(runs: Pair, parting: RunDiff) -> int:
    if parting.first_weights is not None:
        return parting.first_weights
    return min(run.step for run in runs)


def _compare(
    pair: SidePair, runs: Pair, folder: Path, start: int, end: int, phase: Phase
) -> Reruns:
    first = pair.read_answers()
    reports = StepState.from_answer(first[0]), StepState.from_answer(first[1])
    pair.keep()
    begins_equal = is_same(*reports)
    ends = pair.advance(end)
    pair.go_back()
    step: int | None = None
    if not begins_equal:
        step = start
    elif not is_same(*ends):
        phase(f"searching for the first step that differs, from {start + 1} to {end}")
        step = find_first_step(pair, start, end)
    notes = [*_find_notes(runs, ends, end)]
    tensor = None
    if step is not None:
        number = max(step, start + 1)
        phase(f"comparing the tensors of step {number}")
        try:
            tensor, is_usual = _first_tensor(pair, folder, number)
            if not is_usual:
                notes.append(
                    f"recording the tensors of step {number} changes its last bits, so the first "
                    "tensor that differs may be another one"
                )
        except (RunnerError, OSError, ValueError) as error:
            notes.append(f"the tensors of this step cannot be compared: {first_line(error)}")
    recorded = [_recorded_weights(run, end) for run in runs]
    return Reruns(
        start=start,
        end=end,
        first_step=step,
        tensor=tensor,
        repeats=(_is_equal(ends[0], recorded[0]), _is_equal(ends[1], recorded[1])),
        gives_other=(bool(_is_equal(ends[0], recorded[1])), bool(_is_equal(ends[1], recorded[0]))),
        notes=notes,
    )


def _first_tensor(pair: SidePair, folder: Path, step: int) -> tuple[TensorDifference | None, bool]:
    """Returns the first tensor of a step that differs, and whether recording kept the weights.

    A graph that returns its tensors may be optimized differently.
    """
    usual = pair.advance(step)
    pair.go_back()
    paths = folder / "a.npz", folder / "b.npz"
    recorded = pair.record(paths)
    is_usual = [one.weights for one in usual] == [one.weights for one in recorded]
    return first_difference(*paths), is_usual


def _recorded_weights(run: RecordedRun, step: int) -> str | None:
    found = run.history.fingerprints.get(step)
    return None if found is None else found.weights


def _is_equal(report: StepState, recorded: str | None) -> bool | None:
    return None if recorded is None else report.weights == recorded


def _find_notes(runs: Pair, ends: tuple[StepState, StepState], end: int) -> Iterator[str]:
    """Yields which repetition does not give the weights of its run, with the known reasons."""
    for name, run, report in zip("AB", runs, ends, strict=True):
        different = describe_changes(run.record.numerics, report.numerics) if run.record else []
        if _is_equal(report, _recorded_weights(run, end)) is False:
            yield (
                f"a rerun of {name} does not give the weights that {name} recorded at step {end}: "
                "this machine, its packages or the code are not those of the run, or the run was "
                "changed"
            )
        for line in different:
            yield f"{name} was run again with other numerics: {line}"
