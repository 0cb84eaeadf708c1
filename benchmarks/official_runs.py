"""Builds the same experiment in Model Garden's runner and in this one, in one process."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
import yaml
from official.core import exp_factory, task_factory, train_lib

from benchmarks.official_cases import Case, Tree
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.tasks.build import build_task
from orbit_runner.train.controller import build_controller, quiet_orbit_scope
from orbit_runner.train.run_builder import build_run

ENDLESS_STEPS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Contender:
    """A runner that is ready to train and evaluate.

    Attributes:
        train: Trains for the given number of steps, and returns it.
        evaluate: Evaluates the batches of the case, and returns the number of examples.
    """

    train: Callable[[int], int]
    evaluate: Callable[[], int]


def settings(case: Case) -> Tree:
    """Returns the overrides for both runners; a loop has the length of a round."""
    rounds = {
        "train_steps": ENDLESS_STEPS,
        "steps_per_loop": case.steps,
        "summary_interval": case.steps,
        "checkpoint_interval": ENDLESS_STEPS,
        "validation_steps": case.eval_batches,
        "validation_interval": ENDLESS_STEPS,
    }
    changes = case.changes
    return {
        **changes,
        "trainer": {**changes.get("trainer", {}), **rounds},
        "runtime": {**changes.get("runtime", {}), "distribution_strategy": "one_device"},
    }


def model_garden(case: Case, folder: Path) -> Contender:
    """Returns Model Garden's runner, ready to train."""
    params = _garden_params(case)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = task_factory.get_task(params.task, logging_dir=str(folder))
    runner = train_lib.OrbitExperimentRunner(strategy, task, "train_and_eval", params, str(folder))
    return _contender(case, runner.controller, strategy)


def this_runner(case: Case, folder: Path) -> Contender:
    """Returns this runner, ready to train."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "case.yaml"
    path.write_text(yaml.safe_dump(settings(case)), encoding="utf-8")
    request = Request(experiment=f"official/{case.experiment}", config_files=(str(path),))
    config = resolve(request).config
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = build_task(config, str(folder))
    session = build_run(
        config, task, strategy, folder, trains=True, evaluates=True, asynchronous=False
    )
    return _contender(case, build_controller(session), strategy)


@contextlib.contextmanager
def _silent_scope() -> Iterator[None]:
    # Orbit and COCO's tools print.
    with quiet_orbit_scope(), contextlib.redirect_stdout(io.StringIO()):
        yield


def _contender(case: Case, controller: Any, strategy: tf.distribute.Strategy) -> Contender:
    stops = itertools.count(case.steps, case.steps)

    def train(steps: int) -> int:
        with _silent_scope(), strategy.scope():
            for _ in range(steps // case.steps):
                controller.train(next(stops), checkpoint_at_completion=False)
        return steps

    def evaluate() -> int:
        with _silent_scope(), strategy.scope():
            controller.evaluate(case.eval_batches)
        return case.eval_examples

    return Contender(train, evaluate)


def _garden_params(case: Case) -> Any:
    # A driver imports all of these, because projects register some of the parts.
    from official.common import registry_imports  # noqa: F401
    from official.utils.testing import mock_task  # noqa: F401

    params = exp_factory.get_exp_config(case.experiment)
    params.override(settings(case), is_strict=True)
    params.validate()
    params.lock()
    return params
