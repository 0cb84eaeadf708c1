"""The order in which ops start and finish."""

from __future__ import annotations

import dataclasses
import random

import pytest

from orbit_runner.inspection.memory.execution_order import execution_order

SLOW, FAST = 1_000_000, 10


@dataclasses.dataclass
class Node:
    before: list[int]
    cost: int


def order_of(nodes: list[Node], threads: int) -> list[tuple[int, bool]]:
    return [*execution_order(nodes, threads, random.Random(0))]


def random_nodes(count: int = 200) -> list[Node]:
    choose = random.Random(1)
    return [
        Node(
            sorted({choose.randrange(n) for _ in range(choose.randrange(3))} if n else ()),
            choose.choice([SLOW, FAST]),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_op_starts_and_finishes_after_those_that_it_waits_for(threads: int) -> None:
    nodes = random_nodes()
    order = order_of(nodes, threads)
    place = {event: n for n, event in enumerate(order)}

    assert len(order) == len(place) == 2 * len(nodes)
    for n, node in enumerate(nodes):
        assert place[n, True] < place[n, False]
        assert all(place[other, False] < place[n, True] for other in node.before)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_as_many_ops_run_at_once_as_there_are_threads(threads: int) -> None:
    running, most = 0, 0
    for _, starts in order_of(random_nodes(), threads):
        running += 1 if starts else -1
        most = max(most, running)

    assert most == threads


def test_thread_takes_the_latest_op_that_waits_for_it() -> None:
    nodes = [Node([], SLOW), *(Node([0], SLOW) for _ in range(3)), Node([3], SLOW)]

    assert [n for n, starts in order_of(nodes, 1) if starts] == [0, 3, 4, 2, 1]


def test_idle_thread_takes_an_op_that_has_become_ready() -> None:
    nodes = [Node([], SLOW), Node([0], SLOW), Node([0], SLOW)]

    started = [starts for _, starts in order_of(nodes, 2)]

    assert started == [True, False, True, True, False, False]


def test_ops_without_work_run_before_others() -> None:
    nodes = [Node([], SLOW), Node([0], SLOW), Node([0], FAST), Node([0], FAST)]

    assert [n for n, starts in order_of(nodes, 1) if starts] == [0, 2, 3, 1]
