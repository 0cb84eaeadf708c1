"""Random and grid search."""

import statistics

from orbit_runner.sweep.search import (
    Choice,
    Dimension,
    Integers,
    Uniform,
    draw,
    grid_settings,
    random_settings,
)

RATE = Dimension("t.rate", Uniform(1e-4, 1e-2, log=True))
NAME = Dimension("m.name", Choice(("cnn", "mlp")))
UNITS = Dimension("m.units", Integers(8, 64), {"m.name": ("mlp",)})


def test_random_values_do_not_depend_on_other_settings() -> None:
    alone = [random_settings((RATE,), 1, number) for number in range(20)]
    together = [random_settings((NAME, UNITS, RATE), 1, number) for number in range(20)]

    assert [one["t.rate"] for one in alone] == [one["t.rate"] for one in together]
    assert len({one["t.rate"] for one in alone}) == 20


def test_random_values_depend_on_seed_and_trial() -> None:
    assert random_settings((RATE,), 1, 0) != random_settings((RATE,), 2, 0)
    assert random_settings((RATE,), 1, 0) == {"t.rate": 0.00244033}


def test_draws_are_uniform() -> None:
    drawn = [draw(0, number, "a") for number in range(4000)]

    assert 0 <= min(drawn) < 0.01 < 0.99 < max(drawn) < 1
    assert abs(statistics.fmean(drawn) - 0.5) < 0.02


def test_conditional_setting_is_set_only_if_its_condition_holds() -> None:
    found = [random_settings((NAME, UNITS), 0, number) for number in range(30)]

    assert {one["m.name"] for one in found} == {"cnn", "mlp"}
    assert all(("m.units" in one) == (one["m.name"] == "mlp") for one in found)


def test_last_setting_of_a_grid_varies_fastest() -> None:
    units = Dimension("m.units", Choice((1, 2)), {"m.name": ("mlp",)})

    assert grid_settings((NAME, units)) == [
        {"m.name": "cnn"},
        {"m.name": "mlp", "m.units": 1},
        {"m.name": "mlp", "m.units": 2},
    ]
