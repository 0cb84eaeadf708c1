"""Who is told what happens in a run: the progress display, records, tests."""

from __future__ import annotations

from collections.abc import Mapping

Logs = Mapping[str, float]


class Observer:
    """Base class of observers: its methods are called at each event of a run and do nothing.

    Attributes:
        records_data: Whether it writes `data.json`; the run does so itself where no observer does.
    """

    records_data = False

    def phase(self, text: str) -> None:
        """Hears what the run does next.

        Args:
            text: Such as `building the model`.
        """

    def ready(self, step: int) -> None:
        """Hears that model and state are there, restored where there was a checkpoint.

        Args:
            step: The global step, above 0 where one was restored.
        """

    def started(self, step: int, train_steps: int) -> None:
        """Hears that training starts.

        Args:
            step: The step it starts from, above 0 after a resume.
            train_steps: The step it goes to.
        """

    def trained(self, step: int, logs: Logs) -> None:
        """Hears that a loop of steps is done.

        Args:
            step: The global step.
            logs: Means since the last record, and `steps_per_second`.
        """

    def evaluated(self, step: int, logs: Logs) -> None:
        """Hears the result of an evaluation.

        Args:
            step: The global step of the weights.
            logs: The metrics.
        """

    def reproducible(self, reasons: list[str]) -> None:
        """Hears, after training, whether the same config gives the same weights again.

        Args:
            reasons: Why it need not; empty where it does.
        """

    def note(self, text: str) -> None:
        """Hears something worth a line of its own.

        Args:
            text: Such as `early stop at step 300: …`.
        """


class Observers(Observer):
    """Tells several observers, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self.records_data = any(observer.records_data for observer in observers)

    def phase(self, text: str) -> None:
        """Passes it on."""
        for observer in self._observers:
            observer.phase(text)

    def ready(self, step: int) -> None:
        """Passes it on."""
        for observer in self._observers:
            observer.ready(step)

    def started(self, step: int, train_steps: int) -> None:
        """Passes it on."""
        for observer in self._observers:
            observer.started(step, train_steps)

    def trained(self, step: int, logs: Logs) -> None:
        """Passes it on."""
        for observer in self._observers:
            observer.trained(step, logs)

    def evaluated(self, step: int, logs: Logs) -> None:
        """Passes it on."""
        for observer in self._observers:
            observer.evaluated(step, logs)

    def reproducible(self, reasons: list[str]) -> None:
        """Passes it on."""
        for observer in self._observers:
            observer.reproducible(reasons)

    def note(self, text: str) -> None:
        """Passes it on."""
        for observer in self._observers:
            observer.note(text)
