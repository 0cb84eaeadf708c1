"""What must be equal for every program: after kills, on replicas, and on two workers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import to_yaml
from orbit_runner.train.callbacks.base import Callback
from tests.clusters.members import alone, content, mirrored, run_workers
from tests.support.toy import run


class _Copies(Callback):
    """Saves at the ends of loops, and copies the run directory then: what a kill leaves."""

    def __init__(self, folder: Path, moments: Sequence[int]) -> None:
        self._folder = folder
        self._moments = moments

    def on_loop_end(self, run: Any, logs: object) -> None:
        copy = self._folder / f"at-{run.step}"
        if run.step in self._moments and not copy.exists():
            run.checkpoints.save()
            run.checkpoints.sync()
            shutil.copytree(run.model_dir, copy)


def check_kills(
    config: ExperimentConfig, folder: Path, mode: str, strategy: str, moments: Sequence[int]
) -> None:
    """Asserts that runs that are killed after these steps end with equal weights.

    A loop of the runs has one step.
    """
    copies = _Copies(folder, moments)
    uninterrupted, _ = run(config, folder / "whole", mode, strategy, callbacks=[copies])
    for step in moments:
        resumed, _ = run(config, folder / f"at-{step}", mode, strategy)
        assert weights_fingerprint(resumed) == weights_fingerprint(uninterrupted), (
            f"killed at step {step}"
        )


def check_two_workers(config: ExperimentConfig, folder: Path, mode: str) -> None:
    """Asserts that two processes have the weights of two devices of one process."""
    path = folder / "experiment.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    run_workers(folder / "workers", f"--config_file={path}", f"--mode={mode}")
    # In a process of its own: convolutions depend on the threads of an op.
    alone(folder / "mirrored", f"--config_file={path}", f"--mode={mode}", *mirrored(2))

    assert content(folder / "workers")["weights"] == content(folder / "mirrored")["weights"]
