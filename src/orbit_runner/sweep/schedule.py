"""Which runs train next, and the results so far: a pure function of what is on the disk.

Every process of a sweep computes the same, so no process has to decide for the others.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orbit_runner.config.serialize import plain
from orbit_runner.sweep.definition import Sweep
from orbit_runner.sweep.results import TRIAL_STATUSES, SeedResult, SweepResults, TrialResult
from orbit_runner.sweep.run_state import RunState
from orbit_runner.sweep.search.draws import grid_settings, random_settings
from orbit_runner.sweep.search.halving import kept
from orbit_runner.sweep.search.optuna_search import OptunaSearch, Told

States = Callable[[int, int], RunState]  # by trial and seed


@dataclasses.dataclass(frozen=True)
class Task:
    """A run that has to be trained up to a step.

    Attributes:
        number: The trial.
        seed: The seed.
        train_steps: The step at which the run ends; 0 if it follows from `train_epochs`.
        stop_at: The rung at which it stops; None to train to the end.
    """

    number: int
    seed: int
    train_steps: int
    stop_at: int | None

    def is_done(self, state: RunState) -> bool:
        """Returns whether the run needs no training for this task."""
        if state.failure or state.diverged:
            return True
        if self.stop_at is None:
            return state.end(self.train_steps) is not None
        return state.has_reached(self.stop_at) or state.end_before(self.stop_at) is not None


@dataclasses.dataclass(frozen=True)
class Outlook:
    """What is to be done, and what is known.

    Attributes:
        tasks: The runs that can be trained now, in the order of trials.
        settings: The settings of each trial that is known so far.
        results: The results so far.
    """

    tasks: Sequence[Task]
    settings: Sequence[Mapping[str, Any]]
    results: SweepResults

    @property
    def is_finished(self) -> bool:
        """Whether every trial has a result."""
        return not any(trial.status == "pending" for trial in self.results.trials)


class Schedule:
    """Computes the outlook of a sweep from the states of its runs."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        search = sweep.file.search
        self._grid = grid_settings(sweep.file.space) if search.type == "grid" else []
        self._learner: OptunaSearch | None = None
        if search.learns:
            self._learner = OptunaSearch(
                search.type, sweep.file.space, search.seed, sweep.file.mode
            )
        self._told = 0  # batches

    def outlook(self, states: States) -> Outlook:
        """Returns what is to be done next, given the state of each run."""
        tasks: list[Task] = []
        trials: list[TrialResult] = []
        settings: list[Mapping[str, Any]] = []
        for index, bracket in enumerate(self._sweep.brackets()):
            if not self._is_known(index):
                trials += [self._unknown_trial(number) for number in bracket]
                continue
            chosen = {number: self._settings(number) for number in bracket}
            settings += chosen.values()
            found = _Bracket(self._sweep, bracket, states)
            found.decide()
            tasks += found.tasks
            trials += [found.result(number, chosen[number]) for number in bracket]
            if self._learner is not None and index == self._told and found.is_learned:
                for number in bracket:
                    self._learner.tell(number, found.told(number))
                self._told += 1
        return Outlook(tasks, settings, self._results(trials))

    def _is_known(self, index: int) -> bool:
        """Returns whether the settings of a bracket are known; asks for them if they can be."""
        if self._learner is None:
            return True
        if index > self._told:
            return False
        while len(self._learner.settings) < self._sweep.brackets()[index].stop:
            self._learner.ask()
        return True

    def _settings(self, number: int) -> Mapping[str, Any]:
        search, space = self._sweep.file.search, self._sweep.file.space
        if self._learner is not None:
            return self._learner.settings[number]
        if search.type == "grid":
            return self._grid[number]
        return random_settings(space, search.seed, number)

    def _unknown_trial(self, number: int) -> TrialResult:
        return TrialResult(number=number, settings={}, status="pending", runs=[])

    def _results(self, trials: Sequence[TrialResult]) -> SweepResults:
        sweep, values = self._sweep, self._sweep.file.values
        return SweepResults(
            experiment=sweep.name,
            metric=sweep.file.metric,
            mode=sweep.file.mode,
            space=values["space"],
            search={**(values.get("search") or {}), "trials": sweep.trials},
            seeds=[*sweep.seeds],
            train_steps=sweep.last_step,
            trials=[*trials],
        )


class _Bracket:
    """The trials that are compared with each other, and what follows from their states."""

    def __init__(self, sweep: Sweep, numbers: Sequence[int], states: States) -> None:
        self._sweep, self._numbers, self._states = sweep, numbers, states
        self.tasks: list[Task] = []
        self.stopped: dict[int, int] = {}  # trial to rung
        self._learned: dict[int, Told] = {}

    def decide(self) -> None:
        """Finds the tasks that are open, and the trials that were stopped."""
        sweep, halving = self._sweep, self._sweep.file.search.halving
        # What a search that learns proposes next must not change, so it keeps excluded trials.
        skipped = frozenset() if sweep.file.search.learns else sweep.excluded
        ranked = [number for number in self._numbers if number not in skipped]
        forced = [number for number in ranked if number in sweep.forced]
        for rung in sweep.rungs:
            assert halving is not None
            self._add_tasks(sorted({*ranked, *forced}), sweep.train_steps[0], rung)
            if not self._is_done(ranked, sweep.train_steps[0], rung):
                ranked = []
                break
            objectives = {number: self._objective(number, rung) for number in ranked}
            stay = kept(objectives, halving.keep, sweep.file.mode)
            for number in ranked:
                if number not in stay:
                    self.stopped[number] = rung
            ranked = stay
        going_on = sorted({*ranked, *(n for n in forced if self._has_all_rungs(n))})
        for train_steps in sweep.train_steps:
            self._add_tasks(going_on, train_steps, None)

    @property
    def is_learned(self) -> bool:
        """Whether a search that learns can be told all results of the first length of training."""
        first = self._sweep.train_steps[0]
        return all(
            number in self.stopped or self._is_done([number], first, None)
            for number in self._numbers
        )

    def told(self, number: int) -> Told:
        """Returns the result of a trial at the end of the first length of training."""
        rung = self.stopped.get(number)
        if rung is not None:
            return Told(self._objective(number, rung), rung)
        first = self._sweep.train_steps[0]
        return Told(self._mean(number, [self._state(number, s).end(first) for s in self._seeds]))

    def result(self, number: int, settings: Mapping[str, Any]) -> TrialResult:
        """Returns the result of a trial."""
        runs = [self._run(number, seed) for seed in self._seeds]
        status = max((run.status for run in runs), key=_badness)
        return TrialResult(number=number, settings=plain(settings), status=status, runs=runs)

    def _run(self, number: int, seed: int) -> SeedResult:
        state, sweep = self._state(number, seed), self._sweep
        status, step = self._status(number, state)
        ended = status in ("finished", "stopped")
        objective = state.objective(step, sweep.file.metric)
        return SeedResult(
            seed=seed,
            directory=sweep.run_directory(number, seed),
            status=status,
            step=step,
            objective=objective if status not in ("diverged", "failed") else None,
            weights=state.weights.get(step, "") if ended else "",
        )

    def _status(self, number: int, state: RunState) -> tuple[str, int]:
        """Returns the status of a run, and the step that its result is from."""
        sweep, rung, last = self._sweep, self.stopped.get(number), state.last_evaluation
        if number in sweep.excluded:
            return "excluded", last
        if state.failure:
            return "failed", last
        if state.diverged:
            return "diverged", last
        end = state.end(sweep.last_step)
        if rung is not None and number not in sweep.forced:
            early = state.end_before(rung)
            return "stopped", rung if early is None else early
        if end is not None and self._has_all_rungs(number):
            return "finished", end
        return "pending", last

    def _has_all_rungs(self, number: int) -> bool:
        first = self._sweep.train_steps[0]
        return all(self._is_done([number], first, rung) for rung in self._sweep.rungs)

    def _add_tasks(self, numbers: Sequence[int], train_steps: int, rung: int | None) -> None:
        """Adds the runs that are not trained that far, each up to its first open step."""
        busy = {(task.number, task.seed) for task in self.tasks}
        for number in numbers:
            for seed in self._seeds:
                task = Task(number, seed, train_steps, rung)
                if (number, seed) not in busy and not task.is_done(self._state(number, seed)):
                    self.tasks.append(task)

    def _is_done(self, numbers: Sequence[int], train_steps: int, rung: int | None) -> bool:
        return all(
            Task(number, seed, train_steps, rung).is_done(self._state(number, seed))
            for number in numbers
            for seed in self._seeds
        )

    def _objective(self, number: int, rung: int) -> float | None:
        """Returns the mean objective at a rung; of a run that stopped early, its last one."""
        steps = [self._state(number, seed).end_before(rung) for seed in self._seeds]
        return self._mean(number, [rung if step is None else step for step in steps])

    def _mean(self, number: int, steps: Sequence[int | None]) -> float | None:
        found = []
        for seed, step in zip(self._seeds, steps, strict=True):
            state = self._state(number, seed)
            is_lost = step is None or state.failure or state.diverged
            value = None if is_lost else state.objective(step or 0, self._sweep.file.metric)
            if value is None:
                return None
            found.append(value)
        return statistics.fmean(found)

    def _state(self, number: int, seed: int) -> RunState:
        return self._states(number, seed)

    @property
    def _seeds(self) -> Sequence[int]:
        return self._sweep.seeds


# The last of these that a seed has is the status of the trial.
_ORDER = ("finished", "stopped", "diverged", "failed", "pending", "excluded")


def _badness(status: str) -> int:
    assert status in TRIAL_STATUSES
    return _ORDER.index(status)
