"""How loops grow, shrink and end, and how workers divide them."""

import pytest

from orbit_runner.train.loops.loop_pieces import LoopLength
from orbit_runner.train.parameter_servers import split_loop
from orbit_runner.train.schedule import Plan


def _plan(train_steps: int = 100, summary_interval: int = 7) -> Plan:
    return Plan(
        train_steps=train_steps,
        steps_per_epoch=0.0,
        summary_interval=summary_interval,
        checkpoint_interval=30,
        validation_interval=20,
    )


_LONG = _plan(train_steps=10**7, summary_interval=10**7)


@pytest.mark.parametrize(
    ("steps_per_loop", "step", "length"), [(3, 0, 3), (100, 0, 7), (100, 8, 6), (100, 98, 2)]
)
def test_loop_ends_at_the_next_record(steps_per_loop: int, step: int, length: int) -> None:
    assert LoopLength(steps_per_loop, _plan(), lambda: (0, 0.0))(step) == length


@pytest.mark.parametrize(("step", "length"), [(0, 98), (8, 97), (98, 70)])
def test_loop_over_several_records_ends_at_the_last_one(step: int, length: int) -> None:
    plan = _plan(train_steps=10_000)
    steps_per_loop = 75 if step == 98 else 100
    assert LoopLength(steps_per_loop, plan, lambda: (0, 0.0), records=1000)(step) == length


def _lengths(seconds_a_step: list[float]) -> list[int]:
    last = 0, 0.0
    length, step, lengths = LoopLength("auto", _LONG, lambda: last), 0, []
    for seconds in seconds_a_step:
        lengths.append(length(step))
        step += lengths[-1]
        last = lengths[-1], lengths[-1] * seconds
    return lengths


def test_automatic_loops_grow_until_one_takes_a_second() -> None:
    assert _lengths([3.0, *[1e-4] * 7]) == [1, 1, 8, 64, 512, 4096, 10_000, 10_000]


def test_automatic_loops_shrink_when_steps_are_slow() -> None:
    assert _lengths([0.01, 0.01, 0.01, 0.25, 0.25, 5.0, 5.0]) == [1, 8, 64, 100, 4, 4, 1]


@pytest.mark.parametrize(
    ("steps", "workers", "lengths"),
    [
        (1, 4, [1]),
        (7, 2, [4, 3]),
        (40, 4, [10] * 4),
        (100, 2, [10] * 10),
        (1001, 2, [63] * 9 + [62] * 7),
        (10_000, 3, [417] * 16 + [416] * 8),
    ],
)
def test_workers_share_the_steps_of_a_loop_in_equal_pieces(
    steps: int, workers: int, lengths: list[int]
) -> None:
    assert split_loop(steps, workers) == lengths
    assert sum(lengths) == steps
