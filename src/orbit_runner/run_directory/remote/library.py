"""Runs in an object store that are started from Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.directory import retention_of
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.distribute.parameter_server import is_asynchronous
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import RunnerError


@contextlib.contextmanager
def remote_run_scope(
    url: str, mode: str, params: Any, strategy: tf.distribute.Strategy | None
) -> Iterator[Path]:
    """Yields the local copy of a run directory in an object store, and uploads what the run writes.

    `params` is an experiment of Model Garden or of this package. If `strategy` is None, the current
    strategy is used. Raises `RunnerError` if the processes of a cluster would share the directory
    or another process trains in it, and `StorageError` if the store cannot be read or written.
    """
    # Imported here, because importing it takes 15 ms, and every run imports this module.
    from orbit_runner.run_directory.remote.run import evaluation_scope, training_scope

    strategy = strategy or tf.distribute.get_strategy()
    if Workers(strategy).count > 1 or is_asynchronous(strategy):
        raise RunnerError(
            f"model_dir: got {url!r}, expected a local path\n"
            "the processes of a cluster share one directory: use one that all of them mount"
        )
    trainer = params.trainer
    if mode in TRAINING:
        with training_scope(url, keep=retention_of(trainer)) as folder:
            yield folder
        return
    follows = mode == "continuous_eval"
    subdir = trainer.validation_summary_subdir
    with evaluation_scope(url, summaries=subdir, follows=follows) as folder:
        yield folder
