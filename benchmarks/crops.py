"""Compares random crops and flips in this runner with a map over single images.

The images have the size of CIFAR-10's. A graph reads the batches and does nothing else with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks.harness import Figure, alternate
from benchmarks.networks import NETWORKS, task_of
from benchmarks.tfdata_baseline import tfdata_batches
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.tasks.adapter import adapt
from orbit_runner.train.inputs.distribute import distribute

TITLE = "CIFAR-10's crop and flip, batches of 128, on two cores"
UNIT = "images/s"
_BATCH, _STEPS = 128, 200


def _make_pipeline_reader(data: tf.data.Dataset) -> Callable[[], int]:
    iterator = iter(data)

    @tf.function
    def drain(iterator: Any) -> tf.Tensor:
        seen = tf.constant(0)
        for _ in tf.range(_STEPS):
            images, _ = next(iterator)
            seen += tf.cast(images[0, 0, 0, 0], tf.int32)
        return seen

    def run() -> int:
        drain(iterator).numpy()
        return _BATCH * _STEPS

    return run


def _make_in_step_reader(chunks: Any) -> Callable[[], int]:
    @tf.function
    def drain(first: tf.Tensor) -> tf.Tensor:
        seen, done = tf.constant(0), tf.zeros([], tf.int64)
        while done < _STEPS:
            images, _ = chunks(first + done, chunks.length, 0)
            seen += tf.cast(images[0, 0, 0, 0, 0], tf.int32)
            done += chunks.length
        return seen

    def run() -> int:
        drain(tf.zeros([], tf.int64)).numpy()
        return _BATCH * -(-_STEPS // chunks.length) * chunks.length

    return run


def measure(rounds: int = 9) -> list[Figure]:
    """Returns the figures relative to the map over single images."""
    (network,) = (n for n in NETWORKS if n.name == "ResNet-20")
    config = network.config()
    task, data = task_of(config), resolve_data_config(config.task.train_data, config.runtime)
    strategy = tf.distribute.get_strategy()
    dataset = tfdata_batches(config, training=True)
    assert dataset is not None
    mapped = "shuffled, then a map over single images"
    contenders = {
        mapped: _make_pipeline_reader(dataset),
        "this runner's pipeline": _make_pipeline_reader(
            distribute(strategy, adapt(task), data, config.runtime)
        ),
        "this runner, in the step": _make_in_step_reader(task.chunks(data)),
    }
    return alternate(contenders, baseline=mapped, rounds=rounds)
