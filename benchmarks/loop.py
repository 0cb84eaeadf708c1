"""The cost of the loop: the runner's training loop against a bare one on the same data.

The network is small on purpose (`mlp` on the digits), so that what is timed is the loop. Both train
the same architecture with the same optimizer on the same input pipeline. The bare loop does nothing
else; the runner counts loss and accuracy, and writes its records, as in any run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.harness import Figure, alternate
from orbit_runner.config.experiment import ExperimentConfig
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.registry import TASKS
from orbit_runner.training.controller import build_controller, quiet_orbit
from orbit_runner.training.inputs import distribute, with_seed
from orbit_runner.training.observer import Observer
from orbit_runner.training.session import Session
from orbit_runner.training.state import build_state

STEPS = 4000
TITLE = "training, `mlp` on digits, batch 64: runner / bare loop"
UNIT = "steps/s"


def _config(strategy: str) -> ExperimentConfig:
    changes = (
        f"trainer.train_steps=1000000,trainer.train_epochs=0,trainer.summary_interval={STEPS},"
        f"trainer.checkpoint_interval=1000000,runtime.distribution_strategy={strategy}"
    )
    return resolve(Request(experiment="digits_mlp", params_overrides=(changes,))).config


def _runner(strategy: tf.distribute.Strategy, name: str, folder: Path) -> Callable[[], int]:
    config = _config(name)
    with strategy.scope():
        task = TASKS.get("image_classification").load()(config.task)
    session = Session(
        config, task, strategy, folder, Observer(), trains=True, evaluates=False, asynchronous=False
    )
    controller = build_controller(session)

    def run() -> int:
        with quiet_orbit(), strategy.scope():
            controller.train(session.step + STEPS, checkpoint_at_completion=False)
        return STEPS

    return run


def _bare() -> Callable[[], int]:
    config = _config("off")
    task = TASKS.get("image_classification").load()(config.task)
    strategy = tf.distribute.get_strategy()
    state = build_state(config, task, strategy)
    model, optimizer = state.model, state.optimizer
    data = with_seed(config.task.train_data, config.runtime)
    iterator = iter(distribute(strategy, task, data, config.runtime))

    @tf.function
    def loop(iterator: Any, steps: tf.Tensor) -> tf.Tensor:
        loss = 0.0
        for _ in tf.range(steps):
            images, labels = next(iterator)
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def run() -> int:
        loop(iterator, tf.constant(STEPS)).numpy()
        return STEPS

    return run


def measure(rounds: int = 15) -> list[Figure]:
    """Runs the benchmark.

    Args:
        rounds: How often each contender runs.

    Returns:
        Figures against the bare loop.
    """
    with tempfile.TemporaryDirectory() as folder:
        contenders = {
            "bare tf.function loop": _bare(),
            "runner, `off`": _runner(tf.distribute.get_strategy(), "off", Path(folder) / "off"),
            "runner, `one_device`": _runner(
                tf.distribute.OneDeviceStrategy("CPU:0"), "one_device", Path(folder) / "one"
            ),
        }
        return alternate(contenders, baseline="bare tf.function loop", rounds=rounds)
