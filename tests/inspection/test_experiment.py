"""Inspections of whole experiments: parameters, operations, batches, memory and learning rates."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pytest
import tf_keras

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.inspection.experiment import inspect_experiment
from orbit_runner.inspection.schedule import Schedule, rate_curves
from orbit_runner.step.results import forward_flops, totals
from orbit_runner.train_lib import prepare, run_experiment

SYNTHETIC = ("configs/data/synthetic.yaml",)


def config_of(experiment: str, files: tuple[str, ...] = (), **settings: Any) -> Any:
    flags = tuple((f"--{p}", p, str(v)) for p, v in settings.items())
    return resolve(Request(experiment=experiment, config_files=files, flags=flags)).config


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The directory in which `digits` is inspected."""
    return tmp_path_factory.mktemp("inspected")


@pytest.fixture(scope="module")
def digits(directory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        return inspect_experiment(config_of("digits"))


def test_digits_have_the_parameters_and_operations_of_the_network(digits):
    forward = forward_flops(digits.layers)

    assert totals(digits.layers) == (53002, 0)
    assert forward == 2 * (64 * 9 * 32 + 16 * 9 * 32 * 64 + 256 * 128 + 128 * 10)
    # Backward twice the forward pass, but no gradient with respect to the pixels.
    assert digits.step_flops == 64 * (3 * forward - 2 * 64 * 9 * 32)


def test_batches_of_digits_have_the_shapes_and_values_of_the_pipeline(digits):
    features, labels = digits.batches["training"].tensors
    weights = digits.batches["validation"].tensors[2]

    assert (features.name, features.shape, features.dtype) == ("features", (64, 8, 8, 1), "uint8")
    images = digits.batches["training"].images
    assert (features.low, features.high) == (images.min(), images.max())
    assert features.mean == pytest.approx(images.mean())
    assert (labels.low, labels.high) == (0, 9)
    assert (weights.name, weights.low, weights.high) == ("weights", 1, 1)


def test_sizes_are_those_of_the_variables_and_of_the_batch(digits):
    memory = digits.memory

    assert memory.weights == memory.gradients == 53002 * 4
    # Two averages of Adam, and the number of steps.
    assert memory.optimizer == 2 * 53002 * 4 + 8
    assert memory.average == 0
    assert memory.inputs == 64 * 64 + 64 * 4


@pytest.mark.slow
def test_learning_rates_and_counts_are_those_of_a_run(tmp_path):
    settings: dict[str, Any] = {
        "trainer.train_epochs": 0,
        "trainer.train_steps": 25,
        "trainer.summary_interval": 5,
        "trainer.validation_interval": 10,
        "trainer.checkpoint_interval": 10,
        "trainer.max_to_keep": 9,
        "trainer.optimizer_config.learning_rate.cosine.decay_steps": 25,
    }
    config = config_of("digits", **settings)
    schedule = inspect_experiment(config).schedule
    strategy, task = prepare(config, str(tmp_path))
    run_experiment(strategy, task, "train_and_eval", config, str(tmp_path))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]

    assert isinstance(schedule, Schedule)
    recorded = {r["step"]: r["learning_rate"] for r in records if "learning_rate" in r}
    assert sorted(recorded) == [5, 10, 15, 20, 25]
    curve = schedule.rates["learning_rate"]
    assert {step: curve[step] for step in recorded if step < 25} == pytest.approx(
        {step: rate for step, rate in recorded.items() if step < 25}
    )
    assert schedule.evaluations == len({r["step"] for r in records if "validation_loss" in r})
    assert schedule.checkpoints == len([*(tmp_path / "checkpoints").glob("*.index")])
    assert schedule.examples == 25 * 64


def test_learning_rates_leave_the_step_of_the_optimizer():
    optimizer = tf_keras.optimizers.SGD(0.5)
    optimizer.iterations.assign(7)

    assert rate_curves(optimizer, 3) == {"learning_rate": {0: 0.5, 1: 0.5, 2: 0.5}}
    assert int(optimizer.iterations) == 7


def test_a_replica_has_its_share_of_the_batch():
    config = config_of(
        "digits", **{"runtime.distribution_strategy": "mirrored", "runtime.num_virtual_devices": 2}
    )

    inspection = inspect_experiment(config)

    assert inspection.replicas == 2
    assert inspection.batches["training"].tensors[0].shape == (32, 8, 8, 1)
    assert isinstance(inspection.schedule, Schedule)
    assert inspection.schedule.train_steps == 899


@pytest.mark.usefixtures("digits")
def test_inspection_writes_nothing(directory):
    assert os.listdir(directory) == []


@pytest.mark.slow
def test_steps_are_measured_on_synthetic_data():
    config = config_of("digits", SYNTHETIC, **{"trainer.train_steps": 20})

    inspection = inspect_experiment(config, measure=True)

    assert inspection.measured.steps_per_second > 0
    assert inspection.batches["training"].images.dtype == np.uint8
