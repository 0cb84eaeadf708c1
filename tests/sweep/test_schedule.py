"""Which runs train next, and the results: a pure function of the states of runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from orbit_runner.sweep.definition import Sweep
from orbit_runner.sweep.run_state import RunState
from orbit_runner.sweep.schedule import Schedule, SweepProgress
from tests.support.problems import raises
from tests.sweep.sweep_files import TEXT, parsed, state, sweep_of

FOUR = TEXT.replace("trials: 8", "trials: 4")
# The objective at step 20 of four trials: 1 and 3 are kept.
FIRST = {0: 0.1, 1: 0.8, 2: 0.2, 3: 0.9}


def progress(sweep: Sweep, states: Mapping[int, RunState]) -> SweepProgress:
    return Schedule(sweep).progress(lambda number, seed: states.get(number, RunState()))


def tasks(sweep_progress: SweepProgress) -> list[tuple[int, int | None]]:
    return [(task.number, task.stop_at) for task in sweep_progress.tasks]


def statuses(sweep_progress: SweepProgress) -> list[str]:
    return [trial.status for trial in sweep_progress.results.trials]


def at_first_rung() -> dict[int, RunState]:
    return {number: state({20: value}) for number, value in FIRST.items()}


def test_all_trials_train_to_the_first_rung():
    sweep_progress = progress(sweep_of(FOUR), {})

    assert tasks(sweep_progress) == [(0, 20), (1, 20), (2, 20), (3, 20)]
    assert statuses(sweep_progress) == ["pending"] * 4
    assert not sweep_progress.is_finished


def test_rung_is_decided_when_all_trials_have_reached_it():
    states = at_first_rung()
    waiting = progress(sweep_of(FOUR), {**states, 2: RunState()})
    decided = progress(sweep_of(FOUR), states)

    assert tasks(waiting) == [(2, 20)]
    assert tasks(decided) == [(1, 40), (3, 40)]
    assert statuses(decided) == ["stopped", "pending", "stopped", "pending"]
    assert decided.results.trials[0].runs[0].weights == "weights-20"
    assert decided.results.trials[0].objective == 0.1


def test_rung_counts_only_if_a_checkpoint_was_saved():
    evaluated = dataclasses.replace(state({20: 0.5}), weights={})

    assert (0, 20) in tasks(progress(sweep_of(FOUR), {**at_first_rung(), 0: evaluated}))


def test_last_one_trains_to_the_end():
    states = at_first_rung() | {1: state({20: 0.8, 40: 0.7}), 3: state({20: 0.9, 40: 0.6})}
    sweep_progress = progress(sweep_of(FOUR), states)

    assert tasks(sweep_progress) == [(1, None)]
    assert statuses(sweep_progress) == ["stopped", "pending", "stopped", "stopped"]
    assert sweep_progress.results.trials[3].step == 40

    states[1] = state({20: 0.8, 40: 0.7, 60: 0.75}, end=60)
    end_progress = progress(sweep_of(FOUR), states)
    assert end_progress.is_finished
    assert tasks(end_progress) == []
    assert (end_progress.results.best.number, end_progress.results.best.objective) == (1, 0.75)


def test_diverged_and_failed_trials_are_not_kept():
    states = at_first_rung()
    states[3] = dataclasses.replace(state({20: 0.9}), diverged=True)
    states[1] = RunState(failure="no space left")
    sweep_progress = progress(sweep_of(FOUR), states)

    assert statuses(sweep_progress) == ["pending", "failed", "pending", "diverged"]
    assert tasks(sweep_progress) == [(0, 40), (2, 40)]
    assert sweep_progress.results.trials[3].objective is None


def test_run_that_stopped_early_competes_with_its_last_result():
    states = at_first_rung() | {3: state({10: 0.9}, end=10)}

    assert tasks(progress(sweep_of(FOUR), states)) == [(1, 40)]


def test_added_trials_are_compared_with_each_other():
    sweep = dataclasses.replace(sweep_of(FOUR), budgets=(4, 6))
    sweep_progress = progress(
        sweep, {**at_first_rung(), 4: state({20: 0.01}), 5: state({20: 0.02})}
    )

    assert tasks(sweep_progress) == [(1, 40), (3, 40), (5, 40)]
    assert progress(sweep, {}).settings[:4] == progress(sweep_of(FOUR), {}).settings


def test_objective_of_several_seeds_is_their_mean():
    sweep = sweep_of(f"{FOUR}seeds: [1, 2]\n")

    def of_seed(number: int, seed: int) -> RunState:
        return state({20: FIRST[number] if seed == 1 else 1 - FIRST[number] / 2})

    sweep_progress = Schedule(sweep).progress(of_seed)
    assert sweep_progress.results.trials[3].runs[1].directory == "trials/0003/seed-2"
    assert {task.number for task in sweep_progress.tasks} == {1, 3}
    assert len(sweep_progress.tasks) == 4


def test_trial_is_pending_until_all_its_seeds_have_ended():
    sweep = sweep_of(f"{FOUR}seeds: [1, 2]\n")
    diverged = dataclasses.replace(state({20: 0.9}), diverged=True)
    sweep_progress = Schedule(sweep).progress(lambda n, seed: diverged if seed == 1 else RunState())

    assert statuses(sweep_progress) == ["pending"] * 4


LEARNING = FOUR.replace("type: random", "type: tpe, batch: 2").replace("trials: 4", "trials: 6")


def ended(objective: float) -> RunState:
    return state({20: objective, 40: objective, 60: objective}, end=60)


def test_search_that_learns_waits_for_the_results_of_a_batch():
    sweep = sweep_of(LEARNING)
    start = progress(sweep, {})
    first = progress(sweep, {0: ended(0.5), 1: state({20: 0.1})})

    assert len(start.settings) == 2
    assert [trial.settings for trial in start.results.trials[2:]] == [{}] * 4
    assert tasks(first) == [(2, 20), (3, 20)]
    assert first.settings[:2] == start.settings


def without_halving(text: str) -> str:
    return text.replace(", halving: {rungs: [20, 40], keep: 0.5}", "")


PEAK = {20: 0.7, 40: 0.9, 60: 0.8}


@pytest.mark.parametrize(
    ("value", "mode", "expected"),
    [
        ("", "max", (0.8, None)),
        (", value: last", "min", (0.8, None)),
        (", value: best", "max", (0.9, 40)),
        (", value: best", "min", (0.7, 20)),
    ],
)
def test_objective_is_the_last_or_the_best_value(value, mode, expected):
    text = without_halving(FOUR).replace("mode: max", f"mode: {mode}{value}")
    run = progress(sweep_of(text), {0: state(PEAK, end=60)}).results.trials[0].runs[0]

    assert (run.objective, run.objective_step) == expected
    assert (run.step, run.weights) == (60, "weights-60")


def test_best_value_decides_at_a_rung_and_ignores_what_is_not_finite():
    text = FOUR.replace("mode: max", "mode: max, value: best").replace("[20, 40]", "[40]")
    states = {number: state({20: value, 40: 0.5}) for number, value in FIRST.items()}
    states[2] = state({20: float("nan"), 40: 0.85})

    assert tasks(progress(sweep_of(text), states)) == [(2, None), (3, None)]


def test_unknown_objective_value_is_refused():
    with raises("not-allowed", "objective.value"):
        parsed(TEXT.replace("mode: max", "mode: max, value: beste"))
