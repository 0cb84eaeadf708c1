"""Computes the next tasks and the results so far, as a pure function of the files of a sweep.

Every process computes the same, so no coordinator is needed.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence

from orbit_runner.config.serialize import plain_value
from orbit_runner.sweep.definition import Sweep
from orbit_runner.sweep.results import SeedResult, SweepResults, TrialResult
from orbit_runner.sweep.run_state import RunState
from orbit_runner.sweep.search import (
    OptunaSearch,
    grid_settings,
    random_settings,
    select_best,
)

States = Callable[[int, int], RunState]  # by trial and seed


@dataclasses.dataclass(frozen=True)
class TrialTask:
    """A run to train up to a step.

    Attributes:
        number: The trial.
        seed: The seed.
        stop_at: The rung at which it stops; None to train to the end.
    """

    number: int
    seed: int
    stop_at: int | None

    def is_done(self, state: RunState) -> bool:
        """Returns whether the run needs no training for this task."""
        if state.failure or state.diverged:
            return True
        if self.stop_at is None:
            return state.end is not None
        return state.has_reached(self.stop_at) or state.early_end(self.stop_at) is not None


@dataclasses.dataclass(frozen=True)
class SweepProgress:
    """The tasks that can be trained now, and the results so far.

    Attributes:
        tasks: The runs that can be trained now, in the order of trials.
        settings: The settings of each trial that is known so far.
        results: The results so far.
    """

    tasks: Sequence[TrialTask]
    settings: Sequence[Mapping[str, object]]
    results: SweepResults

    @property
    def is_finished(self) -> bool:
        """Whether every trial has a result."""
        return not any(trial.status == "pending" for trial in self.results.trials)


class Schedule:
    """Computes the progress of a sweep from the states of its runs."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        search = sweep.file.search
        self._grid = grid_settings(sweep.file.space) if search.type == "grid" else []
        self._learner: OptunaSearch | None = None
        if search.learns:
            self._learner = OptunaSearch(sweep.file.space, search.seed, sweep.file.objective.mode)
        self._reported_batches = 0

    def progress(self, states: States) -> SweepProgress:
        """Returns the next tasks and the results so far, given the state of each run."""
        tasks: list[TrialTask] = []
        trials: list[TrialResult] = []
        settings: list[Mapping[str, object]] = []
        for index, bracket in enumerate(self._sweep.brackets()):
            if not self._is_known(index):
                trials += [
                    TrialResult(number=number, settings={}, status="pending", runs=[])
                    for number in bracket
                ]
                continue
            bracket_settings = {number: self._settings(number) for number in bracket}
            settings += bracket_settings.values()
            bracket_progress = _Bracket(self._sweep, bracket, states)
            bracket_progress.decide()
            tasks += bracket_progress.tasks
            trials += [
                bracket_progress.result(number, bracket_settings[number]) for number in bracket
            ]
            if (
                self._learner is not None
                and index == self._reported_batches
                and bracket_progress.has_all_outcomes
            ):
                for number in bracket:
                    self._learner.tell(number, *bracket_progress.outcome(number))
                self._reported_batches += 1
        return SweepProgress(tasks, settings, self._results(trials))

    def _is_known(self, index: int) -> bool:
        """Returns whether the settings of a bracket are known; draws them if possible."""
        if self._learner is None:
            return True
        if index > self._reported_batches:
            return False
        while len(self._learner.settings) < self._sweep.brackets()[index].stop:
            self._learner.ask()
        return True

    def _settings(self, number: int) -> Mapping[str, object]:
        search = self._sweep.file.search
        space = self._sweep.file.space
        if self._learner is not None:
            return self._learner.settings[number]
        if search.type == "grid":
            return self._grid[number]
        return random_settings(space, search.seed, number)

    def _results(self, trials: Sequence[TrialResult]) -> SweepResults:
        sweep = self._sweep
        values = self._sweep.file.values
        return SweepResults(
            experiment=sweep.name,
            metric=sweep.file.objective.metric,
            mode=sweep.file.objective.mode,
            value=sweep.file.objective.value,
            space=values["space"],
            search={**(values.get("search") or {}), "trials": sweep.trials},
            seeds=[*sweep.seeds],
            train_steps=sweep.train_steps,
            trials=[*trials],
        )


class _Bracket:
    """The trials that are compared with each other, with their tasks and results."""

    def __init__(self, sweep: Sweep, numbers: Sequence[int], states: States) -> None:
        self._sweep = sweep
        self._numbers = numbers
        self._state = states
        self._seeds = sweep.seeds
        self.tasks: list[TrialTask] = []
        self.stopped: dict[int, int] = {}  # trial to rung

    def decide(self) -> None:
        """Finds the open tasks and the stopped trials."""
        halving = self._sweep.file.search.halving
        ranked = [*self._numbers]
        for rung in self._sweep.rungs:
            assert halving is not None
            self._add_tasks(ranked, rung)
            if self.tasks:
                return
            objectives = {number: self._objective(number, rung) for number in ranked}
            survivors = select_best(objectives, halving.keep, self._sweep.file.objective.mode)
            self.stopped |= {number: rung for number in ranked if number not in survivors}
            ranked = survivors
        self._add_tasks(ranked, None)

    @property
    def has_all_outcomes(self) -> bool:
        """Whether every trial has stopped at a rung or ended."""
        return all(
            number in self.stopped or not self._open_tasks(number, None) for number in self._numbers
        )

    def outcome(self, number: int) -> tuple[float | None, int | None]:
        """Returns the objective of a trial, and the rung at which it was stopped, if it was."""
        rung = self.stopped.get(number)
        return self._objective(number, rung), rung

    def result(self, number: int, settings: Mapping[str, object]) -> TrialResult:
        """Returns the result of a trial."""
        runs = [self._run(number, seed) for seed in self._seeds]
        status = max((run.status for run in runs), key=_SEVERITIES.index)
        return TrialResult(number=number, settings=plain_value(settings), status=status, runs=runs)

    def _run(self, number: int, seed: int) -> SeedResult:
        state = self._state(number, seed)
        sweep = self._sweep
        status, step = self._status(number, state)
        ended = status in ("finished", "stopped")
        has_objective = status not in ("diverged", "failed")
        objective = self._seed_objective(state, step) if has_objective else None
        return SeedResult(
            seed=seed,
            directory=sweep.run_directory(number, seed),
            status=status,
            step=step,
            objective=None if objective is None else objective[1],
            weights=state.weights.get(step, "") if ended else "",
            objective_step=None
            if objective is None or sweep.file.objective.value == "last"
            else objective[0],
        )

    def _status(self, number: int, state: RunState) -> tuple[str, int]:
        """Returns the status of a run, and the step of its result."""
        rung = self.stopped.get(number)
        last = state.last_evaluation
        if state.failure:
            return "failed", last
        if state.diverged:
            return "diverged", last
        if rung is not None:
            return "stopped", state.last_step(rung) or 0
        return ("pending", last) if state.end is None else ("finished", state.end)

    def _add_tasks(self, numbers: Sequence[int], rung: int | None) -> None:
        """Adds the runs that have not reached a rung, or their end if it is None."""
        self.tasks += [task for number in numbers for task in self._open_tasks(number, rung)]

    def _open_tasks(self, number: int, rung: int | None) -> list[TrialTask]:
        tasks = [TrialTask(number, s, rung) for s in self._seeds]
        return [task for task in tasks if not task.is_done(self._state(number, task.seed))]

    def _objective(self, number: int, rung: int | None) -> float | None:
        """Returns the mean objective at a rung, or at the end if that is None or an earlier step.

        None if the run of a seed diverged, failed or has no objective there.
        """
        objectives = []
        for seed in self._seeds:
            state = self._state(number, seed)
            step = state.last_step(rung)
            is_lost = step is None or state.failure or state.diverged
            objective = None if is_lost else self._seed_objective(state, step or 0)
            if objective is None:
                return None
            objectives.append(objective[1])
        return statistics.fmean(objectives)

    def _seed_objective(self, state: RunState, step: int) -> tuple[int, float] | None:
        """Returns the objective of a run that trained to a step, with the step of the value."""
        objective = self._sweep.file.objective
        if objective.value == "best":
            return state.best_objective(step, objective.metric, objective.mode)
        value = state.objective(step, objective.metric)
        return None if value is None else (step, value)


# The last of these that a seed has is the status of the trial.
_SEVERITIES = ("finished", "stopped", "diverged", "failed", "pending")
