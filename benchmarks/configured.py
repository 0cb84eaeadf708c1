"""Compares configured training, with records and checkpoints, with a bare loop that writes nothing.

The number of threads per op applies to a whole process. So each contender has its own process, and
the processes take turns.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import alternate, amount, chosen, table

# Multiples of the summary and checkpoint intervals of these experiments.
STEPS = {"digits_mlp": amount(6000), "digits": amount(900)}
# The network in `benchmarks.networks` for each experiment.
_NETWORKS = {"digits_mlp": "mlp with dropout on digits", "digits": "cnn on digits"}
BARE = "bare `tf.function` loop"


def report(rounds: int = 7) -> str:
    """Measures both experiments, or those in the environment variable `CASES` (`name,name`)."""
    tables = []
    for name in chosen(STEPS, short="digits"):
        with (
            _process_scope("bare", name, 0) as bare,
            _process_scope("bare", name, 1) as single,
            _process_scope("runner", name, 1) as own,
        ):
            runs = {BARE: bare, "the same, one thread per op": single, "this runner": own}
            figures = alternate(runs, baseline=BARE, rounds=rounds)
        tables.append(table(f"training as configured, {name}", "steps/s", figures))
    return "\n".join(tables)


@contextmanager
def _process_scope(kind: str, name: str, threads: int) -> Iterator[Callable[[], int]]:
    command = [sys.executable, "-m", "benchmarks.configured", kind, name, str(threads)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def run() -> int:
        stdin.write("run\n")
        stdin.flush()
        return int(stdout.readline())

    try:
        yield run
    finally:
        stdin.close()
        process.wait()


def main(kind: str, name: str, threads: int) -> None:
    """Runs one round per line of standard input, and prints its number of steps.

    Args:
        kind: `bare` or `runner`.
        name: The name of the experiment.
        threads: Threads per op; 0 means TensorFlow's default.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        run = (_bare if kind == "bare" else _runner)(name, Path(folder))
        for _ in sys.stdin:
            print(run(), flush=True)


def _bare(name: str, folder: Path) -> Callable[[], int]:
    from benchmarks.baselines import bare_loop
    from benchmarks.networks import NETWORKS

    network = next(candidate for candidate in NETWORKS if candidate.name == _NETWORKS[name])
    return bare_loop(dataclasses.replace(network, steps=STEPS[name]))


def _runner(name: str, folder: Path) -> Callable[[], int]:
    from benchmarks.baselines import silent_scope
    from benchmarks.networks import ENDLESS_STEPS, build_run
    from orbit_runner.config.resolve import Request, resolve
    from orbit_runner.train import loop
    from orbit_runner.train.loop import build_controller

    # Training has no end, so that any number of rounds can follow.
    endless = ("trainer.train_epochs=0", f"trainer.train_steps={ENDLESS_STEPS}")
    config = resolve(Request(experiment=name, params_overrides=endless)).config
    session = build_run(config, folder, asynchronous=True)
    controller = build_controller(session)

    def run() -> int:
        plan = dataclasses.replace(session.plan, train_steps=session.step + STEPS[name])
        with silent_scope(), session.strategy.scope():
            loop.train(dataclasses.replace(session, plan=plan), controller, evaluates=False)
        return STEPS[name]

    return run


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
