"""Starts launchers for tests, and kills the processes that are left."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.launches import Launch, alive


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Launch]]:
    """Starts launchers, and kills the processes that are left."""
    launches: list[Launch] = []

    def run(
        plan: dict[str, list[str]],
        strategy: str = "multi_worker_mirrored",
        counts: dict[str, int] | None = None,
        **limits: float,
    ) -> Launch:
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        if counts is None:
            roles = [name.split()[0] for name in plan]
            counts = {role: roles.count(role) for role in roles}
        settings = {
            "folder": str(tmp_path),
            "strategy": strategy,
            "counts": counts,
            "limits": {"restarts": 2, "grace": 60.0, "settle": 30.0, **limits},
        }
        launches.append(Launch(tmp_path, settings))
        return launches[-1]

    yield run
    for launch in launches:
        if launch.process.poll() is None:
            launch.process.kill()
            launch.process.communicate()
        for pid in launch.pids():
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
