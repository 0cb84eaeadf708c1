"""What a run holds while it runs: its directory, and a watch over the other processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from orbit_runner.config.schema.data import services_of
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.distribute.failure_detection import failure_detection_scope
from orbit_runner.distribute.parameter_server import servers_watched
from orbit_runner.distribute.process_group import Workers
from orbit_runner.run_directory.run_lock import RunDirectoryRemoved, RunLock


@contextlib.contextmanager
def run_scope(
    config: ExperimentConfig, strategy: tf.distribute.Strategy, mode: str, model_dir: str | Path
) -> Iterator[None]:
    """Locks the directory of a run, and looks after the other processes that take part in it.

    Args:
        config: The experiment.
        strategy: Where it runs.
        mode: What it does; one that trains locks the directory.
        model_dir: The run directory.

    Raises:
        RunnerError: Another process trains there.
        MemberLost: Another worker is gone, or a service that makes batches.
        RunDirectoryRemoved: The directory was removed.
    """
    owns = mode in TRAINING and Workers(strategy).is_chief
    services, silence = services_of(config, mode), config.runtime.heartbeat_timeout
    lock = _lock_scope(model_dir) if owns else contextlib.nullcontext()
    with (
        lock,
        failure_detection_scope(strategy, services, silence),
        servers_watched(strategy, config.runtime),
    ):
        yield


@contextlib.contextmanager
def _lock_scope(model_dir: str | Path) -> Iterator[None]:
    with RunLock(model_dir) as lock:
        try:
            yield
        except Exception as error:
            if not lock.is_removed():
                raise
            raise RunDirectoryRemoved(
                f"--model_dir: {model_dir} was removed during training, with its checkpoints\n"
                "start the run again; it begins at step 0"
            ) from error
