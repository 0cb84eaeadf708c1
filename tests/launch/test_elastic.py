"""Launches whose number of workers changes: the decisions, and real processes and signals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbit_runner.launch.supervisor import Elastic, possible_workers
from tests.support.launches import Launch


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("logical", "devices", "least", "most", "expected"),
    [
        (4, 1, 1, 4, (4, 2, 1)),
        (4, 1, 2, 4, (4, 2)),
        (4, 1, 1, 3, (2, 1)),
        (8, 2, 1, 8, (4, 2, 1)),
        (6, 1, 1, 6, (6, 3, 2, 1)),
        (4, 1, 3, 3, ()),
        (4, 3, 1, 4, ()),
    ],
)
def test_possible_workers_divide_the_logical_replicas(
    logical: int, devices: int, least: int, most: int, expected: tuple[int, ...]
) -> None:
    assert possible_workers(logical, devices, least, most) == expected


def test_each_size_is_restarted_before_fewer_workers_go_on() -> None:
    elastic, sizes = Elastic((4, 2, 1), 1, 60.0), []
    while elastic.can_continue:
        sizes.append(elastic.workers)
        elastic.record_loss()
    assert [*sizes, elastic.workers] == [4, 4, 2, 2, 1, 1]


def test_messages_name_the_numbers_of_workers() -> None:
    elastic = Elastic((4, 2), 1, 60.0)
    assert elastic.record_loss() == "restarting 4 workers from the last checkpoint (1 of 1)"
    assert elastic.record_loss() == (
        "leaving 2 workers out; continuing with 2 from the last checkpoint"
    )  # fmt: skip
    assert elastic.grow() == "trying 4 workers again instead of 2, from this step"


def test_all_workers_are_tried_again_after_a_while_and_left_out_at_the_next_loss() -> None:
    clock = Clock()
    elastic = Elastic((2, 1), 2, 60.0, clock)
    clock.now = 100.0
    assert not elastic.can_grow  # None is left out.
    for _ in range(3):
        elastic.record_loss()
    elastic.begin()
    clock.now = 159.0
    assert (elastic.workers, elastic.can_grow) == (1, False)
    clock.now = 160.0
    assert elastic.can_grow
    elastic.grow()
    assert elastic.workers == 2
    elastic.record_loss()
    assert elastic.workers == 1


@pytest.mark.slow
def test_worker_that_is_lost_for_good_is_left_out(start: Callable[..., Launch]) -> None:
    launch = start(
        {"worker 0": ["notice('worker 1')"] * 2 + ["exit(0)"], "worker 1": ["die(9)"]},
        restarts=1,
        elastic=[2, 1],
    )
    assert launch.end() == 0
    assert [len(launch.lives(name)) for name in ("worker 0", "worker 1")] == [3, 2]
    found = [len(life["tf_config"]["cluster"]["worker"]) for life in launch.lives("worker 0")]
    assert found == [2, 2, 1]
    assert any(
        "leaving 1 worker out; continuing with 1 from the last checkpoint" in note
        for note in launch.notes
    )


def test_launch_gives_up_after_the_smallest_number_of_workers(
    start: Callable[..., Launch],
) -> None:
    launch = start(
        {"worker 0": ["notice('worker 1')", "die(9)"], "worker 1": ["die(9)"]},
        restarts=0,
        elastic=[2, 1],
    )
    assert launch.end() == 137
    assert len(launch.lives("worker 0")) == 2


@pytest.mark.slow
def test_left_out_worker_joins_after_the_others_have_saved(start: Callable[..., Launch]) -> None:
    launch = start(
        {
            "worker 0": ["notice('worker 1')", "save_when_asked()", "exit(0)"],
            "worker 1": ["die(9)", "exit(0)"],
        },
        restarts=0,
        elastic=[2, 1],
        rejoin_after=3.0,
    )
    assert launch.end() == 0
    assert [len(launch.lives(name)) for name in ("worker 0", "worker 1")] == [3, 2]
    assert "saved, told 1 times" in launch.err
    assert "trying 2 workers again instead of 1, from this step" in launch.notes


@pytest.mark.slow
def test_training_that_ends_when_workers_are_due_is_not_started_again(
    start: Callable[..., Launch],
) -> None:
    # The worker finishes instead of leaving early.
    finish = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); time.sleep(600)"
    launch = start(
        {"worker 0": ["notice('worker 1')", finish, "exit(7)"], "worker 1": ["die(9)", "exit(7)"]},
        restarts=0,
        elastic=[2, 1],
        rejoin_after=3.0,
    )
    assert launch.end() == 0
    assert len(launch.lives("worker 0")) == 2
