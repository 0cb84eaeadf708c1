"""The values of settings, the searches that choose them, and the trials that halving keeps."""

from __future__ import annotations

import math
import statistics

import pytest

from orbit_runner.sweep.search import (
    Choice,
    OptunaSearch,
    Range,
    count_kept,
    draw,
    grid_settings,
    random_settings,
    samples,
    select_best,
)

RATE = {"t.rate": Range(1e-4, 1e-2, log=True)}
NAME = {"m.name": Choice(("cnn", "mlp"))}
UNITS = {"m.units": Range(8, 64, is_integer=True)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (Choice((1, 2, 3)), [1, 2, 3]),
        (Range(0.0, 1.0), [0.0, 0.5, 1.0]),
        (Range(1e-4, 1.0, log=True), [1e-4, 1e-2, 1.0]),
        (Range(1, 9, is_integer=True), [1, 5, 9]),
        (Range(1, 100, log=True, is_integer=True), [1, 7, 100]),
    ],
)
def test_value_lies_between_the_ends(values, expected):
    assert [values.quantile(fraction) for fraction in (0.0, 0.5, 1.0)] == expected


def test_numbers_have_six_digits():
    assert Range(0.0, 1.0).quantile(1 / 3) == 0.333333
    assert Range(0.12345612, 1.0).quantile(0.0) == 0.12345612  # 0.123456 is not in the range


def test_samples_have_each_value_and_both_ends():
    first = {"m.name": "cnn", "m.units": 8}
    expected = [first, {**first, "m.name": "mlp"}, {**first, "m.units": 64}]
    assert samples({**NAME, **UNITS}) == expected


def test_random_values_depend_on_seed_and_trial_but_not_on_other_settings():
    alone = [random_settings(RATE, 1, number) for number in range(20)]
    together = [random_settings({**NAME, **UNITS, **RATE}, 1, number) for number in range(20)]

    assert [trial["t.rate"] for trial in alone] == [trial["t.rate"] for trial in together]
    assert len({trial["t.rate"] for trial in alone}) == 20
    assert alone[0] == {"t.rate": 0.00244033} != random_settings(RATE, 2, 0)


def test_draws_are_uniform():
    drawn = [draw(0, number, "a") for number in range(4000)]

    assert 0 <= min(drawn) < 0.01 < 0.99 < max(drawn) < 1
    assert abs(statistics.fmean(drawn) - 0.5) < 0.02


def test_last_setting_of_a_grid_varies_fastest():
    settings = grid_settings({**NAME, "m.depth": Range(1, 3, is_integer=True)})
    assert [tuple(trial.values()) for trial in settings] == [
        *(("cnn", 1), ("cnn", 2), ("cnn", 3)),
        *(("mlp", 1), ("mlp", 2), ("mlp", 3)),
    ]


OBJECTIVES = {0: 0.5, 1: 0.9, 2: 0.7, 3: 0.9}


@pytest.mark.parametrize(
    ("mode", "fraction", "expected"),
    [
        ("max", 0.5, [1, 3]),
        ("min", 0.5, [0, 2]),
        ("max", 0.25, [1]),
        ("max", 0.01, [1]),
        ("max", 0.7, [1, 2, 3]),
    ],
)
def test_best_trials_are_kept(mode, fraction, expected):
    assert select_best(OBJECTIVES, fraction, mode) == expected
    assert select_best(dict(reversed(OBJECTIVES.items())), fraction, mode) == expected


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_trial_without_an_objective_is_not_kept(value):
    assert select_best({0: value, 1: 0.1}, 0.9, "max") == [1]
    assert select_best({0: value, 1: 0.1}, 0.9, "min") == [1]
    assert select_best({0: value}, 0.9, "min") == []


@pytest.mark.parametrize(
    ("count", "fraction", "expected"), [(30, 0.1, 3), (31, 0.1, 4), (1, 0.5, 1), (5, 0.5, 3)]
)
def test_kept_part_is_rounded_up(count, fraction, expected):
    assert count_kept(count, fraction) == expected


# The objective of each trial, and the rung at which it was stopped.
Outcomes = list[tuple[float | None, int | None]]


def searched(results: Outcomes, batch: int = 4) -> list[dict]:
    """Returns the settings of the trials, asked in batches, each told before the next."""
    space = {**RATE, "m.name": Choice((["a"], ["b"])), **UNITS}
    search = OptunaSearch(space, 3, "min")
    while len(search.settings) < len(results):
        first = len(search.settings)
        for _ in range(batch):
            search.ask()
        for number in range(first, first + batch):
            search.tell(number, *results[number])
    return search.settings


def results(count: int) -> Outcomes:
    outcomes: Outcomes = [(abs(number % 7 - 3) / 3, None) for number in range(count)]
    outcomes[1], outcomes[2], outcomes[5] = (None, None), (0.7, 100), (float("nan"), None)
    return outcomes


def test_tpe_proposes_the_same_settings_for_the_same_results():
    settings = searched(results(32))
    others = [(objective and -objective, rung) for objective, rung in results(32)]

    assert settings == searched(results(32)) != searched(others)
    assert len({trial["t.rate"] for trial in settings}) == 32
    assert {type(trial["m.units"]) for trial in settings} == {int}
