"""Conversion of epochs to steps, and the steps at which training pauses."""

import math

import pytest

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.jobs.train_job import ConfigWriter, Job
from orbit_runner.run_directory.config import read_settings
from orbit_runner.train.schedule import Plan, make_plan
from tests.support.problems import raises
from tests.support.toy import records, run, toy_config


def _plan(**changes):
    values = {
        "train_steps": 100,
        "steps_per_epoch": 10.0,
        "summary_interval": 7,
        "checkpoint_interval": 30,
        "validation_interval": 20,
    }
    return Plan(**{**values, **changes})


@pytest.mark.parametrize(
    ("epochs", "examples", "batch", "steps"),
    [
        (1, 100, 10, 10),
        (1, 101, 10, 11),
        (40, 1438, 64, 899),
        (0.5, 100, 10, 5),
        (0.05, 1000, 7, 8),
        (3, 1, 64, 1),
        (10, 7, 3, 24),
    ],
)
def test_training_epochs_are_converted_to_steps(epochs, examples, batch, steps):
    plan = make_plan(TrainerConfig(train_epochs=epochs), examples / batch)
    assert plan.train_steps == steps
    assert plan.steps_per_epoch == examples / batch


@pytest.mark.parametrize(
    ("epochs", "interval"), [(0.0, 1000), (1.0, 1437.0 / 64), (0.5, 1437.0 / 128)]
)
def test_validation_epochs_are_converted_to_the_validation_interval(epochs, interval):
    trainer = TrainerConfig(train_steps=5000, validation_epochs=epochs)
    assert make_plan(trainer, 1437 / 64).validation_interval == math.ceil(interval)


@pytest.mark.parametrize(
    ("size", "steps", "interval"), [(2.5, 3000, 150), (149.9, 3000, 150), (400.5, 8010, 401)]
)
def test_epochs_of_a_small_dataset_count_as_more_steps(size, steps, interval):
    trainer = TrainerConfig(train_epochs=20, validation_epochs=1, min_steps_per_epoch=150)
    plan = make_plan(trainer, size)
    assert (plan.train_steps, plan.validation_interval) == (steps, interval)
    assert plan.steps_per_epoch == size


@pytest.mark.parametrize("field", ["train_epochs", "validation_epochs"])
def test_epochs_are_rejected_if_the_dataset_size_is_unknown(field):
    with raises("not-set", f"trainer.{field}"):
        make_plan(TrainerConfig(**{field: 2.0}), 0.0)


@pytest.mark.parametrize(
    ("intervals", "evaluates", "stops"),
    [
        ({}, True, [20, 30, 40, 60, 80, 90, 100]),
        ({}, False, [30, 60, 90, 100]),
        # An interval of 0 means only at the end.
        ({"validation_interval": 0}, True, [30, 60, 90, 100]),
        ({"checkpoint_interval": 0}, True, [20, 40, 60, 80, 100]),
        ({"checkpoint_interval": 0, "validation_interval": 0}, True, [100]),
    ],
)
def test_training_pauses_at_each_evaluation_and_checkpoint(intervals, evaluates, stops):
    plan, step, pauses = _plan(**intervals), 0, []
    while step < plan.train_steps:
        step = plan.next_stop(step, evaluates=evaluates)
        pauses.append(step)
    assert pauses == stops
    is_due = {
        "validation_interval": plan.should_evaluate,
        "checkpoint_interval": plan.should_save,
    }
    for name in intervals:
        assert [step for step in range(1, 101) if is_due[name](step)] == [100]


@pytest.mark.parametrize(("steps_per_loop", "interval"), [(5, 5), ("auto", 70)])
def test_a_checkpoint_interval_of_minus_1_means_after_each_loop(steps_per_loop, interval):
    trainer = TrainerConfig(
        train_steps=100, checkpoint_interval=-1, steps_per_loop=steps_per_loop, summary_interval=70
    )

    assert make_plan(trainer, 0.0).checkpoint_interval == interval


@pytest.mark.parametrize(
    ("steps", "interval"), [(1, 1), (50, 1), (300, 3), (64_000, 640), (10**6, 1000)]
)
def test_a_curve_has_at_least_20_points_unless_its_interval_is_set(steps, interval):
    plan = make_plan(TrainerConfig(train_epochs=steps), 1.0)
    assert plan.summary_interval == interval
    assert steps // interval >= min(20, steps)


def test_a_longer_resume_keeps_the_interval_of_the_records(tmp_path):
    for steps in (100, 200):
        config = toy_config(
            trainer__train_steps=steps,
            trainer__summary_interval="auto",
            trainer__validation_interval=200,
            trainer__checkpoint_interval=100,
        )
        resolved = ResolvedConfig(config, {})
        job = Job(resolved=resolved, config=config, mode="train", model_dir=tmp_path)
        run(config, tmp_path, callbacks=[ConfigWriter(job)])
    assert [record["step"] for record in records(tmp_path, "train")] == [*range(1, 201)]
    assert read_settings(tmp_path)["trainer.summary_interval"] == 1
