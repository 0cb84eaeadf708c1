"""A run in an object store, for callers of the library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.distribute.parameter_server import is_asynchronous
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.remote.run import evaluation_scope, training_scope


@contextlib.contextmanager
def remote_run_scope(
    url: str, mode: str, params: Any, strategy: tf.distribute.Strategy | None
) -> Iterator[Path]:
    """Yields the local copy of a run directory, and uploads what a run writes into it.

    Args:
        url: The run directory, in an object store.
        mode: What the run does.
        params: The experiment: Model Garden's config, or one of this runner.
        strategy: Where it runs; the strategy in scope where None.

    Raises:
        RunnerError: The processes of a cluster would share it, or another process trains there.
        StorageError: The store cannot be read or written.
    """
    strategy = strategy or tf.distribute.get_strategy()
    if Workers(strategy).count > 1 or is_asynchronous(strategy):
        raise RunnerError(
            f"model_dir: got {url!r}, expected a local path\n"
            "the processes of a cluster share one directory: give one that all of them mount"
        )
    trainer = params.trainer
    if mode in TRAINING:
        with training_scope(url, keep=trainer.max_to_keep) as folder:
            yield folder
        return
    follows = mode == "continuous_eval"
    subdir = trainer.validation_summary_subdir
    with evaluation_scope(url, summaries=subdir, follows=follows) as folder:
        yield folder
