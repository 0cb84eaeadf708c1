"""Who is told what happens in a run: the progress display, records, tests."""

from __future__ import annotations

from collections.abc import Mapping

Logs = Mapping[str, float]


class Observer:
    """Is told of each event of a run; does nothing by itself."""

    def phase(self, text: str) -> None:
        """Hears what the run does next.

        Args:
            text: Such as `building the model`.
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

    def note(self, text: str) -> None:
        """Hears something worth a line of its own.

        Args:
            text: Such as `early stop at step 300: …`.
        """
