"""Measures the cost of `runtime.logical_replicas: 4`, in speed and in memory.

On one device, the shards of a batch are computed one after another. On two replicas of virtual
CPUs, each computes two of them, and gathers the sums of the other. The same cores do the work in
all cases. Contenders run in turn; memory is measured in a separate process for each.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import tensorflow as tf

from benchmarks.baselines import Run, silent_scope
from benchmarks.harness import alternate
from benchmarks.networks import NETWORKS, Network, build_run
from orbit_runner.inspection.measure import resident_peak
from orbit_runner.train.controller import build_controller

_NAMES = ("small mlp on digits", "mlp with dropout on digits", "ResNet-20", "Transformer tiny")
_KINDS = ("one device", "one device, S = 4", "mirrored × 2", "mirrored × 2, S = 4")


def report(rounds: int = 5) -> str:
    """Returns a table with a row for each network and each number of devices."""
    _configure_two_cpus()
    lines = [
        "### `runtime.logical_replicas: 4` / unset, the same global batch",
        "",
        "| | devices | steps/s, unset | S = 4 | ratio (median) | lowest to highest "
        "| peak MiB, unset | S = 4 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for network in NETWORKS:
        if network.name in _NAMES:
            lines += _rows(network, rounds)
    return "\n".join([*lines, ""])


def _rows(network: Network, rounds: int) -> list[str]:
    rows = []
    for plain, cut in (_KINDS[:2], _KINDS[2:]):
        with tempfile.TemporaryDirectory() as folder:
            contenders = {
                kind: _runner(network, Path(folder) / kind, kind) for kind in (plain, cut)
            }
            first, second = alternate(contenders, baseline=plain, rounds=rounds)
        before, after = (_peak(network.name, kind) for kind in (plain, cut))
        rows.append(
            f"| {network.name} | {plain} | {first.per_second:,.3g} | {second.per_second:,.3g} "
            f"| {second.ratio:.2f} | {second.low:.2f} to {second.high:.2f} "
            f"| {before:,.0f} | {after:,.0f} |"
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _configure_two_cpus() -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, parts)


def _runner(network: Network, folder: Path, kind: str) -> Run:
    """Returns a function that trains for a round and returns the number of steps."""
    strategy = (
        tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())
        if "mirrored" in kind
        else tf.distribute.OneDeviceStrategy("CPU:0")
    )
    logical = "runtime.logical_replicas=4" if "S = 4" in kind else "runtime.logical_replicas=0"
    session = build_run(network.config(logical), folder, strategy=strategy)
    controller = build_controller(session)

    def run() -> int:
        with silent_scope(), strategy.scope():
            controller.train(session.step + network.steps, checkpoint_at_completion=False)
        return network.steps

    return run


def _peak(name: str, kind: str) -> float:
    """Returns the peak of the resident memory of a process that trains for a round, in MiB."""
    command = [sys.executable, "-m", "benchmarks.logical_replicas", name, kind]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.splitlines()[-1])


def main(name: str, kind: str) -> None:
    """Trains for a round, and prints the peak of the resident memory of this process in MiB."""
    _configure_two_cpus()
    (network,) = (one for one in NETWORKS if one.name == name)
    with tempfile.TemporaryDirectory() as folder:
        _runner(network, Path(folder), kind)()
    print((resident_peak() or 0) / 2**20)


if __name__ == "__main__":
    main(*sys.argv[1:])
