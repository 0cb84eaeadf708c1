"""Batches for the report, which leave the datasets of the run and its random draws unchanged."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Generator, Iterator
from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.data import with_seed
from orbit_runner.determinism.numerics import unchanged_generators_scope
from orbit_runner.model_garden.task_adapter.seeded_inputs import repeatable_draws
from orbit_runner.train.evaluator import metrics_of
from orbit_runner.train.inputs.distribute import data_error_scope
from orbit_runner.train.run import Run

_ROWS = 64
# Pipelines that can only start at their beginning fill a buffer to shuffle, and make whole batches.
_MOST_SHUFFLED, _MOST_BATCH = 64, 32


def own_batches(run: Run, section: str, step: int = 0) -> Iterator[Any]:
    """Yields the batches of a section for this process alone, each the whole batch of a step.

    `step` is the step of the first batch, for tasks that can start at any step. Others have smaller
    batches and shuffle fewer examples.
    """
    data = _own_section(run, section)
    with data_error_scope(data):
        chunks = run.adapter.step_batches(data, 1)
    if chunks is None:
        yield from _dataset(run, data, step)
        return
    # Without a pipeline, whose functions would have to be traced.
    steps = itertools.count(step) if chunks.steps is None else range(step, chunks.steps)
    for number in steps:
        yield chunks.batch_at(tf.constant(number, tf.int64))


def _own_section(run: Run, section: str) -> Any:
    data = with_seed(run.section(section), run.config.runtime)
    limits: dict[str, Any] = {"cache": False}
    if not run.adapter.starts_at_step and data.is_training:
        limits |= {
            name: min(getattr(data, name, 0), most)
            for name, most in (
                ("shuffle_buffer_size", _MOST_SHUFFLED),
                ("global_batch_size", _MOST_BATCH),
            )
        }
    return data.replace(**{n: value for n, value in limits.items() if hasattr(data, n)})


def _dataset(run: Run, data: Any, step: int) -> tf.data.Dataset:
    adapter, runtime = run.adapter, run.config.runtime
    seed = getattr(data, "seed", None)
    draws = (
        contextlib.nullcontext()
        if adapter.starts_at_step
        else repeatable_draws(runtime.seed if seed is None else seed, runtime.seed)
    )
    with draws, data_error_scope(data):
        dataset = adapter.build_inputs(data, tf.distribute.InputContext(), step)
    options = tf.data.Options()
    # Deleting an iterator may wait for the thread that tunes; see `train.inputs.distribute`.
    options.autotune.enabled = False
    return dataset.with_options(options)


def parts_for(run: Run, seconds: float) -> Generator[Any, None, None]:
    """Yields the batches of the validation data in parts of at most 64 rows, for some seconds.

    Time counts from the first batch, which has to wait for the pipeline.
    """
    end = math.inf
    for batch in own_batches(run, "validation_data"):
        end = min(end, time.monotonic() + seconds)
        for part in _parts(batch):
            yield part
            if time.monotonic() > end:
                return


def _parts(batch: Any) -> Iterator[Any]:
    tensors = tf.nest.flatten(batch)
    sizes = {one.shape[0] if one.shape.rank else None for one in tensors if tf.is_tensor(one)}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None or not all(isinstance(one, tf.Tensor) for one in tensors):
        yield batch
        return
    for first in range(0, size, _ROWS):
        yield tf.nest.map_structure(lambda one, start=first: one[start : start + _ROWS], batch)


@contextlib.contextmanager
def unchanged_scope(model: Any) -> Iterator[None]:
    """Restores random generators and what a call of a model may change after a `with` block."""
    layers = list(model._flatten_layers())
    variables = [
        *(one for layer in layers for one in layer._non_trainable_weights),
        *(one for metric in metrics_of(model) for one in metric.variables),
    ]
    # Each replica has its own value of some variables.
    stored = {id(part): part for one in variables for part in getattr(one, "values", (one,))}
    kept = [(part, part.numpy()) for part in stored.values()]
    try:
        with unchanged_generators_scope():
            yield
    finally:
        for part, value in kept:
            part.assign(value)
        # The next trace of a step must not find losses of an eager call.
        model._clear_losses()
