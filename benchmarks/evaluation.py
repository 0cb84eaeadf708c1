"""Evaluation: this runner, a bare loop, Keras, Keras 3 and Model Garden's runner.

All of them compute loss and accuracy of the same network on the same images. They take turns in one
process on one CPU. With the digits, an evaluation is short (1,797 images in batches of 64), so the
cost of starting it and of reporting its results counts, as it does between two training loops.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.baselines import PIPELINE, Run, batches, model_garden, silent_scope
from benchmarks.harness import SHORT, Figure, alternate, chosen, table
from benchmarks.keras3 import compile_model
from benchmarks.loop import BARE
from benchmarks.networks import NETWORKS, Network, build_run, task_of
from orbit_runner.tasks.adapter import adapt
from orbit_runner.train.build_state import build_state
from orbit_runner.train.loop import build_controller

_ALL_DIGITS = ("task.validation_data.split=all", "task.validation_data.global_batch_size=64")


@dataclasses.dataclass(frozen=True)
class _Case:
    network: Network
    examples: int
    times: int

    @property
    def work(self) -> int:
        return self.examples * self.times


def _cases() -> dict[str, _Case]:
    by_name = {network.name: network for network in NETWORKS}
    cases = {}
    for name, changes, examples, times in (
        ("mlp on digits", _ALL_DIGITS, 1797, 20),
        ("cnn on digits", _ALL_DIGITS, 1797, 4),
        ("ResNet-20", ("task.validation_data.synthetic.num_examples=2000",), 2000, 1),
    ):
        network = by_name[name]
        network = dataclasses.replace(network, changes=(*network.changes, *changes))
        cases[name] = _Case(network, examples, 1 if SHORT else times)
    return cases


def report(rounds: int = 9) -> str:
    """Measures each network, or those in the environment variable `CASES` (`name,name`)."""
    cases = _cases()
    return "\n".join(
        table(f"evaluation, {name}", "examples/s", _measure(cases[name], rounds))
        for name in chosen(cases, short="mlp on digits")
    )


def _measure(case: _Case, rounds: int) -> list[Figure]:
    network = case.network
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = {
            BARE: _bare(case),
            "this runner": _runner(case, folder / "own"),
            "this runner, on a pipeline": _runner(case, folder / "fed", *PIPELINE),
            "Model Garden's runner": _garden(case, folder / "theirs"),
            "`evaluate`": _keras(case, 1),
            "`evaluate`, `steps_per_execution`": _keras(case, 1000),
        }
        third = compile_model(network, 1)
        if third is not None:
            data = batches(network.config(), task_of(network.config()), training=False)
            runs["Keras 3 `evaluate`"] = _repeat_evaluation(
                case, lambda: third.evaluate(data, verbose=0)
            )
        return alternate(runs, baseline=BARE, rounds=rounds)


def _repeat_evaluation(case: _Case, evaluate: Any) -> Run:
    def run() -> int:
        with silent_scope():
            for _ in range(case.times):
                evaluate()
        return case.work

    return run


def _bare(case: _Case) -> Run:
    config = case.network.config()
    task = task_of(config)
    model = build_state(config, adapt(task), tf.distribute.get_strategy()).model
    data = batches(config, task, training=False)

    @tf.function
    def loop(iterator: Any, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        total, right = 0.0, 0.0
        for _ in tf.range(steps):
            images, labels = next(iterator)
            logits = model(images, training=False)
            total += tf.reduce_sum(task.example_losses(labels, logits))
            hits = tf.equal(tf.argmax(logits, -1, tf.int32), labels)
            right += tf.reduce_sum(tf.cast(hits, tf.float32))
        return total / case.examples, right / case.examples

    steps = tf.constant(int(data.cardinality()))
    return _repeat_evaluation(case, lambda: [float(value) for value in loop(iter(data), steps)])


def _runner(case: _Case, folder: Path, *changes: str) -> Run:
    session = build_run(case.network.config(*changes), folder, evaluates=True)
    controller = build_controller(session)

    def evaluate() -> None:
        with session.strategy.scope():
            controller.evaluate(session.validation_steps)

    return _repeat_evaluation(case, evaluate)


def _garden(case: _Case, folder: Path) -> Run:
    controller, strategy = model_garden(case.network, folder)

    def evaluate() -> None:
        with strategy.scope():
            controller.evaluate(-1)

    return _repeat_evaluation(case, evaluate)


def _keras(case: _Case, steps_per_execution: int) -> Run:
    import tf_keras

    config = case.network.config()
    task = task_of(config)
    model = build_state(config, adapt(task), tf.distribute.get_strategy()).model
    data = batches(config, task, training=False)
    model.compile(
        loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=min(steps_per_execution, int(data.cardinality())),
    )
    return _repeat_evaluation(case, lambda: model.evaluate(data, verbose=0))
