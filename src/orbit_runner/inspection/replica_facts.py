"""Collects what an inspection knows of one replica, from which a rehearsal is computed."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.errors import DataError
from orbit_runner.inspection.batches import batch_bytes
from orbit_runner.inspection.measure import Measurement, variable_bytes
from orbit_runner.inspection.scale import ReplicaFacts, ScaleRequest
from orbit_runner.inspection.step_graph import StepGraph, describe_gradient
from orbit_runner.state.replica_state import replica_local_variables
from orbit_runner.state.train_state import TrainState
from orbit_runner.storage.staging import localize
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.train.schedule import Plan
from orbit_runner.utils.mfu import peak_flops


def replica_facts(
    config: ExperimentConfig,
    scale: ScaleRequest,
    adapter: TaskAdapter,
    state: TrainState,
    plan: Plan | str,
    step: StepGraph | None,
    measured: Measurement | None,
    batch: Any,
) -> ReplicaFacts:
    """Returns what is known of one replica, for a rehearsal."""
    runtime, known = config.runtime, None if isinstance(plan, str) else plan
    dtype = runtime.mixed_precision_dtype or "float32"
    weights = state.model.trainable_weights
    gradients = step.gradients if step else [describe_gradient(one, one) for one in weights]
    data = getattr(config.for_task.task, "train_data", None)
    file_size, file_reading = _training_files(config)
    return ReplicaFacts(
        examples_per_step=adapter.examples_per_step(data) or None if known else None,
        steps_per_epoch=known.steps_per_epoch or None if known else None,
        train_steps=known.train_steps if known else None,
        checkpoint_interval=known.checkpoint_interval if known else 0,
        gradients=gradients,
        averaged_size=variable_bytes(replica_local_variables(state.model)),
        logical_replicas=runtime.logical_replicas,
        flops=step.flops if step else None,
        dtype=dtype,
        peak_flops=peak_flops(scale.gpu, dtype),
        measured_seconds=1 / measured.steps_per_second if measured else None,
        batch_size=None if isinstance(batch, str) else batch_bytes(batch),
        checkpoint_size=_checkpoint_bytes(state),
        file_size=file_size,
        file_reading=file_reading,
        all_reduce=runtime.effective_all_reduce,
    )


def _training_files(config: ExperimentConfig) -> tuple[int | None, str]:
    """Returns the bytes of the files of the training data, and how a worker reads them."""
    if config.is_official:
        return None, ""
    task = localize(config).task
    try:
        files = task.data_files()
        return (
            None if files is None else sum(one.bytes for one in files.get("train_data", ())),
            task.file_reading(),
        )
    except DataError:  # Reported by `preflight`.
        return None, ""


def _checkpoint_bytes(state: TrainState) -> int:
    """Returns the bytes of the variables in a checkpoint."""
    checkpoint = state.checkpoint()  # The view holds a weak reference.
    saved = tf.train.TrackableView(checkpoint).descendants()
    averages = state.ema.averages if state.ema is not None else ()
    found = [one for one in saved if isinstance(one, tf.Variable)]
    return variable_bytes([*found, *state.optimizer_variables(), *averages])
