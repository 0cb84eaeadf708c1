"""The share of the differences between trials that a setting explains."""

from __future__ import annotations

import random

import pytest
import scipy.stats

from orbit_runner.sweep.view.importance import importances
from tests.support.sweep_results import (
    RATE,
    SPACE,
    UNITS,
    learning_rate_sweep,
    make_results,
    make_trial,
)


def test_best_value_in_the_middle_is_found_although_it_has_no_direction():
    rate, units = importances(learning_rate_sweep(40))
    assert (rate.setting.path, units.setting.path) == (RATE, UNITS)
    assert rate.share > 0.5
    assert rate.correlation == pytest.approx(0.0, abs=0.3)
    assert units.share < 0.2
    assert units.correlation is None
    assert (rate.by_chance, units.by_chance) == (3 / 39, 1 / 39)


def test_correlation_is_that_of_spearman():
    draw = random.Random(2)
    rates = [draw.random() for _ in range(12)]
    values = [rate + draw.random() for rate in rates]
    trials = [make_trial(n, {RATE: rates[n], UNITS: [64]}, [values[n]]) for n in range(12)]
    (importance,) = importances(make_results(trials))
    expected = scipy.stats.spearmanr(rates, values).statistic
    assert importance.correlation == pytest.approx(expected, rel=1e-9)


def test_few_or_equal_trials_have_no_importance():
    assert importances(learning_rate_sweep(7)) == []
    equal = [make_trial(n, {RATE: 0.1 * n, UNITS: [64]}, [0.5]) for n in range(9)]
    assert importances(make_results(equal)) == []
    # A category for each trial would explain everything.
    alone = [make_trial(n, {RATE: 0.1, UNITS: [n]}, [0.1 * n]) for n in range(9)]
    assert importances(make_results(alone, space={**SPACE, UNITS: [[n] for n in range(9)]})) == []
