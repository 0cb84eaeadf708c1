"""Input pipelines for asynchronous workers, of tasks that cannot start at a given step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.tf_internals import (
    PerWorkerDistributedIterator,  # the public API supports only one pipeline
    coordinator_workers,
    set_type_spec,
)


class WorkerDatasets:
    """A shard of the examples for each worker, which the worker reads itself.

    A worker that is lost and restarted begins its shard again. TensorFlow's own per-worker datasets
    are the same on all workers, so with a seed, all would train on the same batches.
    """

    def __init__(
        self,
        strategy: tf.distribute.ParameterServerStrategy,
        # Returns the dataset of one worker.
        make: Callable[[tf.distribute.InputContext], tf.data.Dataset],
    ) -> None:
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._workers = coordinator_workers(self._coordinator)
        self._functions = [
            _trace(make, tf.distribute.InputContext(len(self._workers), index, 1))
            for index in range(len(self._workers))
        ]

    def __iter__(self) -> Any:
        made = []
        for worker, function in zip(self._workers, self._functions, strict=True):
            # TensorFlow creates the iterator again if the worker is restarted.
            found = worker.create_resource(lambda function=function: iter(function()))
            spec = tf.data.IteratorSpec(function.structured_outputs.element_spec)
            set_type_spec(found, spec)
            made.append(found)
        return PerWorkerDistributedIterator(tuple(made))


def _trace(make: Callable[[Any], tf.data.Dataset], context: tf.distribute.InputContext) -> Any:
    return tf.function(lambda: make(context)).get_concrete_function()
