"""How loops are cut into pieces for workers."""

import math
from collections.abc import Callable

import pytest

from orbit_runner.train.parameter_server import Pace


def loops(pace: Pace, steps: int, seconds: Callable[[int], float], workers: int) -> list[list[int]]:
    """Cuts one loop, and gives each piece to the next free worker; returns the cuts in order."""
    found = []
    while steps > 0:
        lengths = pace.cut(steps)
        assert min(lengths) >= 1
        free = [0.0] * workers
        for length in lengths:
            free[free.index(min(free))] += seconds(length)
        pace.record_time(lengths, max(free))
        found.append(lengths)
        steps -= sum(lengths)
    return found


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("steps", [1, 2, 7, 100, 1001])
@pytest.mark.parametrize("step", [1e-4, 0.01, 1.0])
def test_pieces_cover_all_steps_of_a_loop(workers: int, steps: int, step: float) -> None:
    pace = Pace(workers)
    for _ in range(5):
        found = loops(pace, steps, lambda n: 0.015 + n * step, workers)
        assert sum(map(sum, found)) == steps


def test_pieces_begin_with_one_step_and_grow() -> None:
    found = loops(Pace(2), 2000, lambda n: 0.015 + n * 0.004, 2)
    assert [lengths[0] for lengths in found[:4]] == [1, 1, 4, 16]
    assert all(len(lengths) == 2 for lengths in found[:3])


@pytest.mark.parametrize(("step", "beginning"), [(0.004, 0.015), (0.05, 0.0), (0.0005, 0.015)])
def test_pieces_take_a_fifth_of_a_second(step: float, beginning: float) -> None:
    pace = Pace(2)
    loops(pace, 10**4, lambda n: beginning + n * step, 2)
    (lengths,) = loops(pace, 10**5, lambda n: beginning + n * step, 2)
    assert step * max(lengths) == pytest.approx(0.2, rel=0.15)


def test_pieces_with_a_slow_start_are_longer() -> None:
    pace = Pace(2)
    loops(pace, 10**4, lambda n: 0.1 + n * 0.005, 2)
    (lengths,) = loops(pace, 10**4, lambda n: 0.1 + n * 0.005, 2)
    assert 0.005 * max(lengths) == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize("steps", [10, 40, 200])
def test_short_loops_are_split_evenly_over_all_workers(steps: int) -> None:
    workers = 4
    pace = Pace(workers)
    loops(pace, 10**4, lambda n: 0.01 + n * 0.01, workers)
    (lengths,) = loops(pace, steps, lambda n: 0.01 + n * 0.01, workers)
    assert len(lengths) >= workers
    assert max(lengths) - min(lengths) <= 1
    assert math.fsum(lengths) == steps
