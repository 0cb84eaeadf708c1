"""Measures the cost of exactness: an experiment with everything that it requires, and without.

On: deterministic ops, random draws keyed by the step, and checkpoints with fingerprints, written in
the background at the experiment's own interval. Off: any op, Keras' own random draws, and no
checkpoints. Otherwise, both are the shipped experiment; `resnet_cifar` trains on synthetic images.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.python.framework import config as private  # the public API cannot disable it

from benchmarks.harness import Figure, alternate, amount, chosen
from benchmarks.networks import build_run
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.train import steps as train_steps
from orbit_runner.train.loop import build_controller, quiet_orbit_scope

TITLE = "training with all exactness settings on / off"
UNIT = "steps/s"
_STEPS = {"digits": amount(1200), "resnet_cifar": amount(40)}
_NO_END = "trainer.train_epochs=0,trainer.train_steps=1000000"


def config_of(name: str, *changes: str) -> ExperimentConfig:
    """Returns a shipped experiment that trains indefinitely and needs no download."""
    files = ("configs/data/synthetic.yaml",) if name == "resnet_cifar" else ()
    overrides = (_NO_END, *changes)
    return resolve(Request(experiment=name, config_files=files, params_overrides=overrides)).config


def _contender(name: str, folder: Path, *, exact: bool) -> Callable[[], int]:
    config = config_of(name, f"runtime.deterministic={str(exact).lower()}")
    session = build_run(config, folder, asynchronous=True)
    controller, steps = build_controller(session), _STEPS[name]

    def run() -> int:
        target = session.step + steps
        with _numerics_scope(exact), quiet_orbit_scope(), session.strategy.scope():
            while session.step < target:
                stop = session.plan.next_stop(session.step, evaluates=False)
                controller.train(min(stop, target), checkpoint_at_completion=False)
                if exact and session.plan.should_save(session.step):
                    session.checkpoints.save()
        return steps

    return run


@contextlib.contextmanager
def _numerics_scope(exact: bool) -> Iterator[None]:
    if exact:
        tf.config.experimental.enable_op_determinism()
        yield
        return
    private.disable_op_determinism()
    with mock.patch.object(train_steps, "keyed_draws_scope", _unkeyed_scope):
        yield


@contextlib.contextmanager
def _unkeyed_scope(*key: Any) -> Iterator[None]:
    yield


def measure(rounds: int = 11) -> list[Figure]:
    """Returns the figures of each experiment relative to itself without exactness."""
    figures = []
    for name in chosen(_STEPS, short="digits"):
        with tempfile.TemporaryDirectory() as folder:
            off, on = f"`{name}`, everything off", f"`{name}`, everything on"
            contenders = {
                off: _contender(name, Path(folder) / "off", exact=False),
                on: _contender(name, Path(folder) / "on", exact=True),
            }
            figures += alternate(contenders, baseline=off, rounds=rounds)
    return figures
