"""Measures how long training pauses for a checkpoint that is written in the background."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import tensorflow as tf

from benchmarks.exactness import config_of
from benchmarks.networks import build_run
from orbit_runner.train.controller import build_controller, quiet_orbit_scope

_STEPS = {"digits": 50, "resnet_cifar": 2}
_MINUTE = 60.0


def _pauses(name: str, saves: int, *changes: str) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        session = build_run(config_of(name, *changes), Path(folder), asynchronous=True)
        controller, pauses = build_controller(session), list[float]()
        for _ in range(saves):
            with quiet_orbit_scope(), session.strategy.scope():
                controller.train(session.step + _STEPS[name], checkpoint_at_completion=False)
            start = time.perf_counter()
            session.checkpoints.save()
            pauses.append(time.perf_counter() - start)
            # Checkpoints a minute apart do not wait for each other, so neither do these.
            session.checkpoints.sync()
        return pauses


def report(saves: int = 25) -> str:
    """Returns a table of the pauses of each network over a number of saves."""
    tf.config.experimental.enable_op_determinism()
    lines = [
        "### pause in training for a checkpoint, written in the background",
        "",
        "| | median | first | second, which traces the copy once "
        "| share of wall time at one save per minute |",
        "|---|---|---|---|---|",
    ]
    for title, name, changes in (
        ("`digits`", "digits", ()),
        ("`resnet_cifar`", "resnet_cifar", ()),
        (
            "`resnet_cifar`, depth 110, batch 8",
            "resnet_cifar",
            ("task.model.depth=110,task.train_data.global_batch_size=8",),
        ),
    ):
        first, second, *others = _pauses(name, saves, *changes)
        median = statistics.median(others)
        lines.append(
            f"| {title} | {1e3 * median:.1f} ms | {1e3 * first:.0f} ms | {1e3 * second:.0f} ms "
            f"| {median / _MINUTE:.3%} |"
        )
    return "\n".join([*lines, ""])
