"""The values of a setting, conditions between settings, and the samples that are checked."""

import pytest

from orbit_runner.sweep.search import (
    Choice,
    Dimension,
    Integers,
    Uniform,
    samples,
)

NAME = Dimension("m.name", Choice(("cnn", "mlp")))
FILTERS = Dimension("m.filters", Integers(8, 64), {"m.name": ("cnn",)})
DEPTH = Dimension("m.depth", Choice((1, 2)), {"m.filters": (8,)})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (Choice((1, 2, 3)), [1, 2, 3]),
        (Uniform(0.0, 1.0), [0.0, 0.5, 1.0]),
        (Uniform(1e-4, 1.0, log=True), [1e-4, 1e-2, 1.0]),
        (Integers(1, 9), [1, 5, 9]),
        (Integers(1, 10, step=4), [1, 5, 9]),
        (Integers(1, 100, log=True), [1, 7, 100]),
    ],
)
def test_value_lies_between_the_ends(values, expected: list) -> None:
    assert [values.quantile(fraction) for fraction in (0.0, 0.5, 1.0)] == expected


def test_numbers_have_six_digits() -> None:
    assert Uniform(0.0, 1.0).quantile(1 / 3) == 0.333333
    assert Uniform(0.12345612, 1.0).quantile(0.0) == 0.12345612  # 0.123456 is not in the range


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (Uniform(0.0, 1.0), None),
        (Uniform(0.0, 1.0, count=3), [0.0, 0.5, 1.0]),
        (Uniform(0.0, 1.0, count=1), [0.5]),
        (Uniform(1.0, 100.0, log=True, count=3), [1.0, 10.0, 100.0]),
        (Integers(1, 4), [1, 2, 3, 4]),
        (Integers(1, 100, log=True), None),
        (Integers(1, 3, count=9), [1, 2, 3]),
    ],
)
def test_grid_values(values, expected: list | None) -> None:
    assert values.grid() == expected


def test_samples_have_each_value_and_only_active_settings() -> None:
    found = samples((NAME, FILTERS, DEPTH))

    assert {"m.name": "mlp"} in found
    assert {"m.name": "cnn", "m.filters": 64} in found
    assert {"m.name": "cnn", "m.filters": 8, "m.depth": 2} in found
    assert len(found) == 4


def test_setting_is_not_set_if_the_one_it_depends_on_is_not() -> None:
    assert not DEPTH.is_active({"m.name": "mlp"})
    assert DEPTH.is_active({"m.filters": 8})
