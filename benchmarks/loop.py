"""Training: this runner, a bare loop, Keras' `fit`, Keras 3 and Model Garden's runner.

All of them train the same network with the same optimizer on the same batches. They take turns in
one process on one CPU. The bare loop computes no metrics. The runner computes its loss and the
task's metrics and writes its records, as in any run. The smaller the network, the more the loop
itself determines the result.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import baselines
from benchmarks.harness import Figure, alternate, chosen, table
from benchmarks.keras3 import fit as keras3_fit
from benchmarks.networks import NETWORKS, Network

_XLA = "runtime.enable_xla=true"
BARE = "bare `tf.function` loop"


def report(rounds: int = 9) -> str:
    """Measures each network, or those in the environment variable `CASES` (`name,name`)."""
    names = chosen((network.name for network in NETWORKS), short="cnn on digits")
    return "\n".join(
        table(f"training, {network.name}", "steps/s", measure_network(network, rounds))
        for network in NETWORKS
        if network.name in names
    )


def measure_network(network: Network, rounds: int) -> list[Figure]:
    """Returns the figures of all contenders for a network."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = {
            BARE: baselines.bare_loop(network),
            "this runner": baselines.runner(network, folder / "own"),
            "this runner, on a pipeline": baselines.runner_on_pipeline(network, folder / "fed"),
            "Model Garden's runner": baselines.garden_training(network, folder / "theirs"),
            "`fit`": baselines.fit(network),
            "`fit`, `steps_per_execution`": baselines.fit(network, network.steps),
        }
        if network.compiles:
            runs["this runner, XLA"] = baselines.runner(network, folder / "xla", _XLA)
        for label, steps in (("Keras 3 `fit`", 1), ("the same, all steps at once", network.steps)):
            third = keras3_fit(network, steps)
            if third is not None:
                runs[label] = third
        return alternate(runs, baseline=BARE, rounds=rounds)
