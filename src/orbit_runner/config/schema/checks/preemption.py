"""Checks of the section `runtime.preemption`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.errors import unknown_name_message

if TYPE_CHECKING:
    from orbit_runner.config.schema.runtime import PreemptionConfig

# Others have a meaning already, or cannot be handled.
NOTICE_SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGURG", "SIGXCPU")


def preemption_problems(preemption: PreemptionConfig) -> Iterator[tuple[str, str]]:
    """Yields (field, message) for signals that cannot give notice."""
    for name in preemption.signals:
        if name not in NOTICE_SIGNALS:
            yield "signals", unknown_name_message("signal", name, NOTICE_SIGNALS)
