"""Commands of trials, and waiting for the processes that run them."""

from __future__ import annotations

import os
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from orbit_runner.sweep.trial_process import TrialCommand, TrialProcess
from tests.support.launches import wait_for

SHORT = (
    "--experiment=digits_mlp",
    "--trainer.train_steps=40",
    "--trainer.validation_interval=20",
    "--trainer.checkpoint_interval=20",
    "--trainer.summary_interval=10",
)
# Until a signal ends it.
ENDLESS = (*SHORT, "--trainer.train_steps=100000000")


def trial(log: Path, *arguments: str, cores: tuple[int, ...] = (), **environ: str) -> TrialCommand:
    """Returns the command that runs `runner ARGUMENTS` with more environment variables."""
    return TrialCommand(
        arguments=arguments, environ={**os.environ, **environ}, cores=cores, log=log
    )


def end_of(process: TrialProcess) -> int:
    """Waits for the exit code of a process."""
    found: Any = wait_for(lambda: process.poll() is not None and (process.poll(),))
    return int(found[0])


def parent_of(pid: int) -> int:
    """Returns the ID of the process that a process will report its end to."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[1])


def stop_forkserver() -> None:
    """Ends the server of `multiprocessing` in this process; its forks must have ended."""
    forkserver._forkserver._stop()
