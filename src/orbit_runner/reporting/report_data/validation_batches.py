"""Batches for the report, which leave the datasets of the run and its random draws unchanged."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Iterator
from typing import Any

import tensorflow as tf

from orbit_runner.determinism.numerics import unchanged_generators_scope
from orbit_runner.train.evaluator import metrics_of
from orbit_runner.train.inputs.local_batches import own_batches
from orbit_runner.train.run import Run

_ROWS = 64


def batches_of(run: Run, section: str, step: int = 0) -> Iterator[Any]:
    """Yields the batches of a section of a run; see `own_batches`."""
    return own_batches(run.adapter, run.config.runtime, run.section(section), step)


def validation_parts(run: Run, seconds: float) -> Generator[Any, None, None]:
    """Yields the batches of the validation data in parts of at most 64 rows, for some seconds.

    Time counts from the first batch, which has to wait for the pipeline.
    """
    end = math.inf
    for batch in batches_of(run, "validation_data"):
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
