"""Locks the directory of a run and monitors its other processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING, check_mode
from orbit_runner.distribute.failure_detection import failure_detection_scope
from orbit_runner.distribute.process_group import Workers
from orbit_runner.run_directory.run_lock import RunDirectoryRemoved, RunLock


@contextlib.contextmanager
def run_scope(
    config: ExperimentConfig, strategy: tf.distribute.Strategy, mode: str, model_dir: str | Path
) -> Iterator[None]:
    """Locks the run directory if the mode trains, and monitors the other processes of the run.

    Workers that reach the end wait for each other. Raises RunnerError if the mode is unknown or
    another process trains in the directory, MemberLost if another worker fails, and
    RunDirectoryRemoved if the directory was removed.
    """
    check_mode(mode)
    workers = Workers(strategy)
    should_lock = mode in TRAINING and workers.is_chief
    lock = _lock_scope(model_dir) if should_lock else contextlib.nullcontext()
    with lock, failure_detection_scope(strategy, config.runtime):
        yield
        workers.acknowledge()  # The process may exit after this.


@contextlib.contextmanager
def _lock_scope(model_dir: str | Path) -> Iterator[None]:
    with RunLock(model_dir) as lock:
        try:
            yield
        except RunDirectoryRemoved:
            raise
        except Exception as error:
            # A file that could not be written is a consequence.
            if lock.is_removed():
                raise lock.removal_error() from error
            raise
        # A save may have created the directory again, with nothing else in it.
        if lock.is_removed():
            raise lock.removal_error()
