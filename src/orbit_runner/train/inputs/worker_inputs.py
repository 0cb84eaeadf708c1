"""Input pipelines of tasks that cannot start at a given step, one for each asynchronous worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.coordinator import (
    values,
)  # the public way knows one pipeline only


class WorkerDatasets:
    """A share of the examples for each worker, read by the worker itself.

    A worker that is lost and comes back begins its share anew. TensorFlow's own way to make data
    sets on workers gives all the same one; with a seed, all would train on the same batches.
    """

    def __init__(
        self,
        strategy: tf.distribute.ParameterServerStrategy,
        make: Callable[[tf.distribute.InputContext], tf.data.Dataset],
    ) -> None:
        """Traces the pipelines.

        Args:
            strategy: Where they run.
            make: Makes the pipeline of one worker.
        """
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._workers = self._coordinator._cluster.workers
        self._functions = [
            _trace(make, tf.distribute.InputContext(len(self._workers), index, 1))
            for index in range(len(self._workers))
        ]

    def __iter__(self) -> Any:
        """Makes an iterator on each worker, anew whenever one comes back."""
        made = []
        for worker, function in zip(self._workers, self._functions, strict=True):
            found = worker.create_resource(lambda function=function: iter(function()))
            found._type_spec = tf.data.IteratorSpec(function.structured_outputs.element_spec)
            made.append(found)
        return values.PerWorkerDistributedIterator(tuple(made))


def _trace(make: Callable[[Any], tf.data.Dataset], context: tf.distribute.InputContext) -> Any:
    return tf.function(lambda: make(context)).get_concrete_function()
