"""What exactness costs: an experiment with everything that it takes, against one with none of it.

On: deterministic ops, draws keyed by the step, checkpoints at the experiment's own interval,
written beside training, with their fingerprints. Off: any op, Keras' own draws, no checkpoints.
Both are the checked-in experiment in all else; `resnet_cifar` trains on generated images.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.python.framework import config as private  # it has no public way back

from benchmarks.harness import Figure, alternate
from benchmarks.networks import session_of
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.train import trainer
from orbit_runner.train.controller import build_controller, quiet_orbit

TITLE = "training with everything that exactness takes / with nothing of it"
UNIT = "steps/s"
_STEPS = {"digits": 1200, "resnet_cifar": 40}
_NO_END = "trainer.train_epochs=0,trainer.train_steps=1000000"


def config_of(name: str, *changes: str) -> ExperimentConfig:
    """Returns a checked-in experiment without an end, on data that are there."""
    files = ("configs/data/synthetic.yaml",) if name == "resnet_cifar" else ()
    overrides = (_NO_END, *changes)
    return resolve(Request(experiment=name, config_files=files, params_overrides=overrides)).config


def _contender(name: str, folder: Path, *, exact: bool) -> Callable[[], int]:
    config = config_of(name, f"runtime.deterministic={str(exact).lower()}")
    session = session_of(config, folder, asynchronous=True)
    controller, steps = build_controller(session), _STEPS[name]

    def run() -> int:
        target = session.step + steps
        with _numerics(exact), quiet_orbit(), session.strategy.scope():
            while session.step < target:
                stop = session.plan.next_stop(session.step, evaluates=False)
                controller.train(min(stop, target), checkpoint_at_completion=False)
                if exact and session.plan.saves_at(session.step):
                    session.checkpoints.save()
        return steps

    return run


@contextlib.contextmanager
def _numerics(exact: bool) -> Iterator[None]:
    if exact:
        tf.config.experimental.enable_op_determinism()
        yield
        return
    private.disable_op_determinism()
    with mock.patch.object(trainer, "keyed_draws_scope", _unkeyed):
        yield


@contextlib.contextmanager
def _unkeyed(*key: Any) -> Iterator[None]:
    yield


def measure(rounds: int = 11) -> list[Figure]:
    """Runs the benchmark.

    Args:
        rounds: How often each contender runs.

    Returns:
        Figures of each experiment against itself without exactness.
    """
    figures = []
    for name in _STEPS:
        with tempfile.TemporaryDirectory() as folder:
            off, on = f"`{name}`, everything off", f"`{name}`, everything on"
            contenders = {
                off: _contender(name, Path(folder) / "off", exact=False),
                on: _contender(name, Path(folder) / "on", exact=True),
            }
            figures += alternate(contenders, baseline=off, rounds=rounds)
    return figures
