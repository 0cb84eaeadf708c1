"""Batches of a section for one process, made independently of the pipelines of a run."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.model_garden.task_adapter.seeded_inputs import repeatable_draws_scope
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.train.inputs.distribute import data_error_scope

# Pipelines that can only start at their beginning fill a buffer to shuffle, and make whole batches.
_MAX_SHUFFLE_BUFFER, _MAX_BATCH_SIZE = 64, 32


def own_batches(
    adapter: TaskAdapter, runtime: RuntimeConfig, section: Any, step: int = 0
) -> Iterator[Any]:
    """Yields the batches of a section for this process alone, each the whole batch of a step.

    `step` is the step of the first batch, for tasks that can start at any step. Others have smaller
    batches and shuffle fewer examples.
    """
    data = _limit_section(adapter, resolve_data_config(section, runtime))
    with data_error_scope(data):
        chunks = adapter.step_batches(data, 1)
    if chunks is None:
        yield from _dataset(adapter, runtime, data, step)
        return
    # Without a pipeline, whose functions would have to be traced.
    steps = itertools.count(step) if chunks.steps is None else range(step, chunks.steps)
    for number in steps:
        yield chunks.batch_at(tf.constant(number, tf.int64))


def _limit_section(adapter: TaskAdapter, data: Any) -> Any:
    limits: dict[str, Any] = {"cache": False}
    if not adapter.starts_at_step and data.is_training:
        limits |= {
            name: min(getattr(data, name, 0), most)
            for name, most in (
                ("shuffle_buffer_size", _MAX_SHUFFLE_BUFFER),
                ("global_batch_size", _MAX_BATCH_SIZE),
            )
        }
    return data.replace(**{n: value for n, value in limits.items() if hasattr(data, n)})


def _dataset(adapter: TaskAdapter, runtime: RuntimeConfig, data: Any, step: int) -> tf.data.Dataset:
    seed = getattr(data, "seed", None)
    draws = (
        contextlib.nullcontext()
        if adapter.starts_at_step
        else repeatable_draws_scope(runtime.seed if seed is None else seed, runtime.seed)
    )
    with draws, data_error_scope(data):
        dataset = adapter.build_inputs(data, tf.distribute.InputContext(), step)
    options = tf.data.Options()
    # Deleting an iterator may wait for the thread that tunes; see `train.inputs.distribute`.
    options.autotune.enabled = False
    return dataset.with_options(options)
