"""What a run holds on to while it runs, and the loop that its mode names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orbit
import tensorflow as tf

from orbit_runner.config.schema.data_services import services_of
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import MODES, TRAINING
from orbit_runner.distribute.failure_detection import failure_detection_scope
from orbit_runner.distribute.parameter_server import servers_watched
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import RunnerError, unknown
from orbit_runner.run_directory.run_lock import RunDirectoryRemoved, RunLock
from orbit_runner.train import loop
from orbit_runner.train.run import Session


def check_mode(mode: str) -> None:
    """Checks that there is such a mode.

    Args:
        mode: Its name.

    Raises:
        RunnerError: There is none.
    """
    if mode not in MODES:
        raise RunnerError(f"--mode: {unknown('mode', mode, MODES)}")


@contextlib.contextmanager
def run_scope(
    config: ExperimentConfig, strategy: tf.distribute.Strategy, mode: str, model_dir: str | Path
) -> Iterator[None]:
    """Holds the folder of a run, and looks after the other processes that take part in it.

    Args:
        config: The experiment.
        strategy: Where it runs.
        mode: What it does; one that trains wants the folder to itself.
        model_dir: The folder.

    Raises:
        RunnerError: Another process trains there.
        MemberLost: Another worker is gone, or a service that makes batches.
        RunDirectoryRemoved: The folder was removed.
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


def run_mode(session: Session, controller: orbit.Controller, mode: str) -> dict[str, Any]:
    """Trains, evaluates, or both.

    Args:
        session: The run, its state restored or at its beginning.
        controller: Its controller.
        mode: One of `MODES`.

    Returns:
        The result of the last evaluation; {} where there was none.
    """
    if mode == "eval":
        return loop.evaluate_checkpoint(session, controller)
    if mode == "continuous_eval":
        return loop.evaluate_continuously(session, controller)
    with session.signals.installed_scope(), session.checkpoints.completed_saves_scope():
        logs = loop.train(session, controller, evaluates=mode == "train_and_eval")
        if mode == "train_and_post_eval":
            logs = loop.evaluate(session, controller)
    session.observer.reproducible(session.inexact())
    return logs
