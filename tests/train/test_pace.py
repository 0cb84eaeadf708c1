"""How a loop is divided into pieces for the workers of `parameter_server`."""

import pytest

from orbit_runner.train.parameter_servers import split_loop


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
