"""What ends training before its last step: signals, servers that leave, callbacks, a given step."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from orbit_runner.distribute.cluster.shutdown import Host
from orbit_runner.distribute.process_group import Workers
from orbit_runner.train.callbacks.interrupts import SIGNALS, Interrupted, SignalGuard

_OTHER_WORKER = "a callback of another worker asked to stop"


class StopTraining(Exception):
    """A callback asked to stop between two loops of one call of the controller."""


class StoppedAtStep(Interrupted):
    """The run has reached the step that it was to stop at, its checkpoint saved."""

    def __init__(self, step: int) -> None:
        super().__init__(0, f"stopped at step {step}, as asked")


class StopRequests:
    """Gathers the reasons to stop, and has all workers stop at the same step.

    Attributes:
        reason: Why a callback asked to stop; "" if none has.
        signals: Remembers Ctrl-C, SIGTERM and SIGHUP.
        servers: The servers that are to leave with this process, where there are any.
    """

    def __init__(
        self,
        workers: Workers,
        signals: SignalGuard,
        servers: Host | None,
        note: Callable[[str], None],
        *,
        at_step: int | None = None,
    ) -> None:
        """Begins with none.

        Args:
            workers: The workers that train together.
            signals: Remembers the signals of this process.
            servers: The servers that leave with this process, if any.
            note: Called with the servers that leave.
            at_step: The step to stop at as a signal would have it, if any.
        """
        self._workers, self._note, self._at_step = workers, note, at_step
        self.signals, self.servers = signals, servers
        self.reason = ""

    def limit(self, step: int) -> int:
        """Returns the step to train to: a given one, or that to stop at if it comes first."""
        return step if self._at_step is None else min(step, self._at_step)

    def next_loop(self, steps: int, step: int, save: Callable[[], Any]) -> int:
        """Agrees on the length of the next loop, or ends training; all workers call it together.

        Args:
            steps: The number of steps that this worker would take.
            step: The global step.
            save: Saves a checkpoint.

        Returns:
            The number that the chief would take: it goes by the clock, and clocks differ.

        Raises:
            StopTraining: A callback of any worker asked to stop.
            Interrupted: A signal came to any worker.
        """
        chosen = self._leave_or_agree(steps, step, save)
        if self.reason:
            raise StopTraining
        return chosen

    def agree(self) -> str:
        """Returns the reason of any worker's callback to all; all workers call it together."""
        (stops,) = self._workers.sums([bool(self.reason)])
        if stops and not self.reason:
            self.reason = _OTHER_WORKER
        return self.reason

    def check(self, step: int, save: Callable[[], Any]) -> None:
        """Ends training if a signal came to any worker; all workers call it together.

        Args:
            step: The global step.
            save: Saves a checkpoint.

        Raises:
            Interrupted: A signal came to any worker.
        """
        self._leave_or_agree(0, step, save)

    def _leave_or_agree(self, steps: int, step: int, save: Callable[[], Any]) -> int:
        own = self.signals.received or self._asked_by_server()
        chosen, stops, *counts = self._workers.sums(
            [
                steps if self._workers.is_chief else 0,
                bool(self.reason),
                *(own == number for number in SIGNALS),
            ]
        )
        if stops and not self.reason:
            self.reason = _OTHER_WORKER
        number = next((n for n, count in zip(SIGNALS, counts, strict=True) if count), None)
        if number is not None:
            save()
            raise Interrupted.at_step(number, step)
        if self._at_step is not None and step >= self._at_step:
            save()
            raise StoppedAtStep(step)
        return chosen

    def next_piece(self, steps: int) -> int:
        """Returns how many steps all workers take next; 0 where a signal came to any of them.

        Args:
            steps: The number of steps that this worker would take.
        """
        asked = bool(self.signals.received or (self.servers and self.servers.leaving()))
        chosen, count = self._workers.sums([steps if self._workers.is_chief else 0, asked])
        return 0 if count else chosen

    def _asked_by_server(self) -> int | None:
        leaving = self.servers.leaving() if self.servers is not None else []
        if not leaving:
            return None
        self._note(f"{', '.join(leaving)}: was asked to leave")
        return signal.SIGTERM
