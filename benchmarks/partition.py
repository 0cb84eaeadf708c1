"""Measures the time that spatial partitioning costs and the memory that it saves, on virtual CPUs.

All virtual CPUs share the cores of the machine, so the time shows only the overhead of
partitioning, without the gain from more devices. Memory is the most that a device holds during one
step, computed from TensorFlow's records of each allocation and release. It includes activations,
gradients and the scratch space of kernels, but not weights and input, which are allocated outside
of the step.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.harness import Figure, alternate
from orbit_runner.distribute.spatial import partition_model
from orbit_runner.models.resnet_cifar import resnet_cifar

SIZE, BATCH, STEPS = 128, 4, 3
PARTS = {"1 x 2": [1, 1, 2, 1], "2 x 2": [1, 2, 2, 1]}
_CPUS = [f"CPU:{index}" for index in range(4)]


def _configure_four_cpus() -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration()] * len(_CPUS)
    tf.config.set_logical_device_configuration(cpu, parts)


def _batch() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, (BATCH, SIZE, SIZE, 3), "uint8")
    return images, generator.integers(0, 10, BATCH, "int32")


def build_steps() -> tuple[tf_keras.Model, dict[str, Any]]:
    """Builds a training step for the whole network and for each partition.

    Returns:
        The network, whose weights all steps share, and the concrete functions of a batch by name.
    """
    model = resnet_cifar(input_shape=(SIZE, SIZE, 3), num_classes=10, depth=8, mean=[120.0])
    calls: dict[str, Any] = {"whole": model}
    for name, dims in PARTS.items():
        calls[name] = partition_model(model, dims, [_CPUS[: dims[1] * dims[2]]])

    def step_of(called: Any) -> Any:
        @tf.function
        def step(images: tf.Tensor, labels: tf.Tensor) -> Any:
            with tf.device(_CPUS[0]):
                with tf.GradientTape() as tape:
                    logits = called(images, training=True)
                    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                    loss = tf.reduce_mean(losses)
                return tape.gradient(loss, model.trainable_variables)

        specs = [tf.TensorSpec(array.shape, array.dtype) for array in _batch()]
        return step.get_concrete_function(*specs)

    return model, {name: step_of(called) for name, called in calls.items()}


def measure_times(functions: Mapping[str, Any], rounds: int) -> list[Figure]:
    """Measures the time per step, relative to the whole network."""
    batch = [tf.constant(array) for array in _batch()]

    def contender(step: Any) -> Callable[[], int]:
        def run() -> int:
            for _ in range(STEPS):
                gradients = step(*batch)
            gradients[0].numpy()
            return STEPS

        return run

    contenders = {name: contender(step) for name, step in functions.items()}
    return alternate(contenders, baseline="whole", rounds=rounds)


def peak_memory(step: Any) -> dict[str, float]:
    """Returns the peak memory of each device in a step, in megabytes."""
    # Only TensorFlow 1 sessions report single allocations.
    v1, batch = tf.compat.v1, _batch()
    values = {id(variable.handle): variable.numpy() for variable in step.graph.variables}
    with tf.Graph().as_default():
        replaced: dict[str, Any] = {}
        for outer, inner in zip(step.captured_inputs, step.graph.internal_captures, strict=True):
            initial = values[id(outer)]
            name = f"variable{len(replaced)}"
            variable = v1.get_variable(name, initializer=initial, use_resource=True)
            replaced[inner.name] = variable.handle
        feeds = {}
        for tensor, array in zip(step.graph.inputs, batch, strict=False):
            replaced[tensor.name] = v1.placeholder(tensor.dtype, tensor.shape)
            feeds[replaced[tensor.name]] = array
        ends = [tensor.name for tensor in step.graph.outputs]
        ends += [op.name for op in step.graph.control_outputs]
        definition = step.graph.as_graph_def()
        found = tf.import_graph_def(definition, replaced, return_elements=ends, name="step")
        with v1.Session(config=v1.ConfigProto(device_count={"CPU": len(_CPUS)})) as session:
            session.run(v1.global_variables_initializer())
            return _trace_peak_memory(session, [getattr(end, "op", end) for end in found], feeds)


def _trace_peak_memory(session: Any, ends: list[Any], feeds: Mapping[Any, Any]) -> dict[str, float]:
    v1, highest = tf.compat.v1, defaultdict[str, float](float)
    session.run(ends, feeds)
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    for _ in range(3):
        metadata = v1.RunMetadata()
        session.run(ends, feeds, options=options, run_metadata=metadata)
        for device in metadata.step_stats.dev_stats:
            records = [
                (record.alloc_micros, record.alloc_bytes)
                for node in device.node_stats
                for memory in node.memory
                for record in memory.allocation_records
            ]
            held = np.cumsum([size for _, size in sorted(records)] or [0])
            name = device.device.split("device:")[-1]
            highest[name] = max(highest[name], float(held.max()) / 1e6)
    return dict(highest)


def measure_in_process(rounds: int) -> str:
    """Runs the benchmark in this process, in which TensorFlow must not have started."""
    _configure_four_cpus()
    tf_keras.utils.set_random_seed(1)
    _model, functions = build_steps()
    figures = measure_times(functions, rounds)
    memory = {name: peak_memory(step) for name, step in functions.items()}
    whole = max(memory["whole"].values())
    lines = [
        f"### spatial partition, `resnet_cifar` of depth 8, {SIZE} x {SIZE} pixels, batch {BATCH}, "
        "parts on virtual CPUs of the same cores",
        "",
        "| | time of a step / whole (median) | lowest to highest | most memory of a device "
        "| / whole | of each device |",
        "|---|---|---|---|---|---|",
    ]
    for figure in figures:
        each = [memory[figure.name][device] for device in sorted(memory[figure.name])]
        lines.append(
            f"| {figure.name} | {1 / figure.ratio:.2f} "
            f"| {1 / figure.high:.2f} to {1 / figure.low:.2f} | {max(each):.1f} MB "
            f"| {max(each) / whole:.2f} | {', '.join(f'{size:.1f}' for size in each)} MB |"
        )
    return "\n".join([*lines, ""])


def report(rounds: int = 10) -> str:
    """Runs the benchmark in a separate process, because it needs virtual CPUs."""
    command = [sys.executable, "-m", "benchmarks.partition", str(rounds)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    print(measure_in_process(int(sys.argv[1]) if len(sys.argv) > 1 else 10), end="")
