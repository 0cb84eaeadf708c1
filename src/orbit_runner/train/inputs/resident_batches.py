"""Decides whether a dataset stays in memory, so that steps need no input pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.step_batches import Chunks
from orbit_runner.distribute.devices import local_devices
from orbit_runner.errors import SettingError
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tasks.base import section_of
from orbit_runner.train.inputs.distribute import data_error_scope

if TYPE_CHECKING:
    from orbit_runner.train.inputs.distribute import DataSection


_MAX_BYTES = 2**30  # if `on_device` is not set


def resident_batches(
    config: ExperimentConfig, strategy: tf.distribute.Strategy, task: TaskAdapter, data: DataSection
) -> Chunks | None:
    """Returns the batches of a data section by step, or None if a pipeline has to make them.

    The seed of the section must be set. Raises SettingError if its `on_device` is true, but steps
    cannot make the batches.
    """
    requested = getattr(data, "on_device", False)
    if requested is False:
        return None
    replicas = strategy.num_replicas_in_sync
    if data.global_batch_size % replicas:
        return None  # The pipeline reports that error.
    obstacle = _obstacle(config, strategy, data)
    chunks = None
    if not obstacle:
        with data_error_scope(data):
            chunks = task.step_batches(data, replicas)
    if requested and chunks is None:
        obstacle = obstacle or "this dataset is read on demand, or preprocessed for each example"
        reason = f"got true, but {obstacle}\nomit it to use an input pipeline where one is needed"
        raise SettingError(f"task.{section_of(data)}.on_device", reason, code="not-supported")
    if not requested and chunks is not None and chunks.nbytes > _MAX_BYTES:
        return None
    return chunks


def _obstacle(config: ExperimentConfig, strategy: tf.distribute.Strategy, data: Any) -> str:
    """Returns why steps cannot make the batches, or "" if they can."""
    runtime = config.runtime
    if runtime.run_eagerly:
        return "the loop over steps does not run as a graph"
    if runtime.traits.is_asynchronous or runtime.traits.uses_tpu:
        return f"runtime.distribution_strategy is {runtime.distribution_strategy}"
    if PipelineOptions.from_config(data).services:
        return "tf.data services produce the batches"
    if any("CPU" not in name.upper() for name in local_devices(strategy)):
        return "steps on a GPU get their batches from a pipeline"
    return ""
