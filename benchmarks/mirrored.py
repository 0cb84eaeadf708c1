"""Compares two replicas on two virtual CPUs with one device, with the same global batch size.

The same cores do the work in both cases, so two replicas are at best as fast. The difference is the
cost of the all-reduce of the gradients and of distributing steps. The all-reduce is also measured
separately, on tensors with the shapes of the gradients.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.baselines import Run, silent_scope
from benchmarks.harness import alternate
from benchmarks.networks import NETWORKS, Network, build_run
from orbit_runner.train.controller import build_controller

_NAMES = ("mlp on digits", "cnn on digits", "ResNet-20", "NeuMF")
_TIMES = 50


def report(rounds: int = 7) -> str:
    """Returns a table with a row for each network."""
    _configure_two_cpus()
    lines = [
        "### two replicas on two virtual CPUs / one device, the same global batch",
        "",
        "| | steps/s, one device | two replicas | ratio (median) | lowest to highest | all-reduce, "
        "share of a step |",
        "|---|---|---|---|---|---|",
    ]
    for network in NETWORKS:
        if network.name in _NAMES:
            lines.append(_row(network, rounds))
    return "\n".join([*lines, ""])


def _configure_two_cpus() -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, parts)


def _row(network: Network, rounds: int) -> str:
    mirrored = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )
    with tempfile.TemporaryDirectory() as folder:
        one, _ = _runner(network, Path(folder) / "one", tf.distribute.OneDeviceStrategy("CPU:0"))
        two, weights = _runner(network, Path(folder) / "two", mirrored)
        first, second = alternate({"one": one, "two": two}, baseline="one", rounds=rounds)
        share = _all_reduce_seconds(mirrored, weights) * second.per_second
    return (
        f"| {network.name} | {first.per_second:,.3g} | {second.per_second:,.3g} "
        f"| {second.ratio:.2f} | {second.low:.2f} to {second.high:.2f} | {share:.0%} |"
    )


def _runner(network: Network, folder: Path, strategy: tf.distribute.Strategy) -> tuple[Run, Any]:
    name = "mirrored" if strategy.num_replicas_in_sync > 1 else "one_device"
    config = network.config(f"runtime.distribution_strategy={name}")
    session = build_run(config, folder, strategy=strategy)
    controller = build_controller(session)

    def run() -> int:
        with silent_scope(), strategy.scope():
            controller.train(session.step + network.steps, checkpoint_at_completion=False)
        return network.steps

    return run, session.state.model.trainable_variables


def _all_reduce_seconds(strategy: tf.distribute.Strategy, weights: Any) -> float:
    shapes = [weight.shape for weight in weights]

    def all_reduce_ones() -> Any:
        context = tf.distribute.get_replica_context()
        summed = context.all_reduce(tf.distribute.ReduceOp.SUM, [tf.ones(s) for s in shapes])
        return tf.add_n([tf.reshape(one, [-1])[0] for one in summed])

    @tf.function
    def all_reduce_repeatedly() -> Any:
        return [strategy.run(all_reduce_ones) for _ in range(4)]

    all_reduce_repeatedly()
    found = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        all_reduce_repeatedly()
        found.append((time.perf_counter() - start) / 4)
    return statistics.median(found)
