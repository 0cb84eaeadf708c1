"""The order in which the threads of TensorFlow's executor start and finish the ops of a graph.

A thread that has finished an op continues with one of those that have thereby become ready. The
others wait for an idle thread, or for the same thread, which takes the latest of them first. Cheap
ops do not wait.
"""

from __future__ import annotations

import collections
import heapq
import random
from collections.abc import Iterator, Sequence
from typing import Protocol

# An op whose own work takes less time than this is not left to another thread.
_CHEAP = 20_000
# The executor needs some time for each op, whatever its work.
_OVERHEAD = 10_000
# The times of an op vary by this factor from step to step.
_VARIATION = 2.0


class Node(Protocol):
    """An op."""

    @property
    def before(self) -> Sequence[int]:
        """The numbers of the ops that must finish before it starts."""

    @property
    def cost(self) -> int:
        """Its estimated time, in units of the time that it takes to read or write a byte."""


def execution_order(
    nodes: Sequence[Node], threads: int, variation: random.Random
) -> Iterator[tuple[int, bool]]:
    """Yields the number of each op twice: with True when it starts, with False when it finishes."""
    queues = _Queues(nodes, threads)
    running: list[int | None] = [None] * threads
    events = [(0.0, thread) for thread in range(threads)]  # when a thread finishes its op
    idle: set[int] = set()
    while events:
        time, thread = heapq.heappop(events)
        done = running[thread]
        if done is not None:
            yield done, False
            waiting = queues.finish(done, thread)
            for other in [*idle][:waiting]:
                idle.remove(other)
                heapq.heappush(events, (time, other))
        n = running[thread] = queues.next(thread)
        if n is None:
            idle.add(thread)
            continue
        yield n, True
        factor = _VARIATION ** variation.uniform(-1.0, 1.0)
        heapq.heappush(events, (time + factor * (_OVERHEAD + nodes[n].cost), thread))


class _Queues:
    """The ops that are ready, for each thread."""

    def __init__(self, nodes: Sequence[Node], threads: int) -> None:
        self._nodes = nodes
        self._missing = [len(node.before) for node in nodes]
        self._after: list[list[int]] = [[] for _ in nodes]
        for n, node in enumerate(nodes):
            for one in node.before:
                self._after[one].append(n)
        roots = (n for n, count in enumerate(self._missing) if not count)
        self._own = [collections.deque[int]() for _ in range(threads)]
        # The last queue belongs to no thread.
        self._shared = [
            *(collections.deque[int]() for _ in range(threads)),
            collections.deque(roots),
        ]

    def finish(self, done: int, thread: int) -> int:
        """Adds the ops that only waited for `done`; returns how many other threads may take."""
        ready = []
        for n in self._after[done]:
            self._missing[n] -= 1
            if not self._missing[n]:
                ready.append(n)
        slow = [n for n in ready if self._nodes[n].cost >= _CHEAP]
        own = self._own[thread]
        own.extend(n for n in ready if self._nodes[n].cost < _CHEAP)
        if slow and not own:
            own.append(slow.pop())
        self._shared[thread].extend(slow)
        return len(slow)

    def next(self, thread: int) -> int | None:
        """Returns the op that a thread runs next; None if there is none for it."""
        if self._own[thread]:
            return self._own[thread].popleft()
        if self._shared[thread]:
            return self._shared[thread].pop()
        longest = max(self._shared, key=len)
        return longest.popleft() if longest else None
