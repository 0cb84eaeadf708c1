"""A small source, and the batches that all replicas together get from a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.order.sharding import eval_steps
from orbit_runner.data.source import ArraySource
from orbit_runner.serving.loader import make_task


def some_indices(size: int, count: int) -> np.ndarray:
    """Returns some indices below `size`, ascending."""
    return np.sort(np.random.default_rng(size).permutation(size)[:count]).astype(np.int64)


def make_source(size: int) -> ArraySource:
    image = np.random.default_rng(4).integers(0, 256, (size, 6, 6, 3)).astype(np.uint8)
    nested = {"twice": np.arange(size, dtype=np.int64) * 2}
    label = np.arange(size, dtype=np.int32)
    return ArraySource("made", {"image": image, "label": label, "nested": nested})


def contexts(replicas: int, pipelines: int) -> list[tf.distribute.InputContext]:
    return [tf.distribute.InputContext(pipelines, p, replicas) for p in range(pipelines)]


def global_batches(make, replicas: int, pipelines: int, steps: int) -> list:
    """Puts the slices of all replicas together, as strategies pull them."""
    rows = [make(context).as_numpy_iterator() for context in contexts(replicas, pipelines)]
    return [
        tf.nest.map_structure(
            lambda *parts: np.concatenate(parts),
            *(next(row) for row in rows for _ in range(replicas // pipelines)),
        )
        for _ in range(steps)
    ]


def evaluation_batches(make, source, batch, replicas, pipelines, **settings):
    """Returns the batches of an evaluation that `make` makes the datasets of."""
    steps = eval_steps(source.size, batch, settings.get("drop_remainder", False))

    def rows(context):
        dataset = make(source, global_batch_size=batch, input_context=context, **settings)
        assert dataset.cardinality() == steps * replicas // pipelines
        return dataset

    return global_batches(rows, replicas, pipelines, steps)


def assert_equal_batches(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Disables autotuning as the runner does: TensorFlow may block when iterators are destroyed."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def batches_of(config: ExperimentConfig, first: int, steps: int) -> list[Any]:
    """Returns the batches from step `first` on, as two workers put them together."""
    task = make_task(config, None)
    data = resolve_data_config(config.task.train_data, config.runtime)
    return global_batches(
        lambda context: task.build_inputs(data, context, start_step=first - 1), 2, 2, steps
    )
