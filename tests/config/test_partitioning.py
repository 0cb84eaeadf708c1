"""Partition dims: where they are set, and what is rejected before anything is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.modes import MODES
from orbit_runner.config.schema.partitioning import (
    effective_runtime,
    find_split,
    run_problems,
    shape_problems,
)
from orbit_runner.jobs.preflight import check_before_start
from orbit_runner.train.inputs.distribute import Partition
from tests.support.problems import check, raises

TRAIN, EVAL = "runtime.train_input_partition_dims", "runtime.eval_input_partition_dims"
TASK_TRAIN, TASK_EVAL = "task.train_input_partition_dims", "task.eval_input_partition_dims"
BOTH = f"{TRAIN}=[1,2,2,1],{EVAL}=[1,2,2,1]"
MIRRORED = "runtime.distribution_strategy=mirrored,runtime.num_virtual_devices=4"
TPU = "runtime.distribution_strategy=tpu,runtime.tpu=local"

Over = Callable[..., Any]


def config(over: Over, *overrides: str) -> Any:
    """Returns digits (8x8 images, batches of 64 in both sections) with settings applied to it."""
    return over(params_overrides=("task.validation_data.global_batch_size=64", *overrides))


def found(over: Over, mode: str, *overrides: str) -> list[Problem]:
    return [*run_problems(config(over, *overrides), mode)]


@pytest.mark.parametrize(
    ("said", "train", "evaluation"),
    [
        ("trainer.train_epochs=1", None, None),
        (f"{TRAIN}=[1,2,2,1]", (1, 2, 2, 1), None),
        (f"{EVAL}=[1,4,1,1]", None, (1, 4, 1, 1)),
        (f"{TASK_TRAIN}=[1,2,1,1],{TASK_EVAL}=[1,1,2,1]", (1, 2, 1, 1), (1, 1, 2, 1)),
        (f"{TASK_TRAIN}=[1,2,1,1],{TRAIN}=[1,2,1,1]", (1, 2, 1, 1), None),
        (f"{TASK_TRAIN}=[],{TRAIN}=[1,2,1,1]", (1, 2, 1, 1), None),
        (f"{TASK_TRAIN}=[1,2,1,1],{TRAIN}=[]", (1, 2, 1, 1), None),
        (f"{TRAIN}=[1,1,1,1],{EVAL}=[]", None, None),
        (f"{TASK_TRAIN}=null,{TRAIN}=null", None, None),
    ],
)
def test_partition_dims_can_be_set_in_task_or_runtime(over_digits, said, train, evaluation):
    resolved = config(over_digits, said)

    for is_training, dims in ((True, train), (False, evaluation)):
        split = find_split(resolved, is_training)
        assert (split.dims if split.parts > 1 else None) == dims


@pytest.mark.parametrize(
    ("mode", "train", "evaluation"),
    [
        ("train", [1, 2, 1, 1], None),
        ("eval", None, [1, 1, 2, 1]),
        ("continuous_eval", None, [1, 1, 2, 1]),
        ("train_and_eval", [1, 2, 1, 1], [1, 1, 2, 1]),
        ("train_and_post_eval", [1, 2, 1, 1], [1, 1, 2, 1]),
    ],
)
def test_effective_runtime_has_the_dims_of_the_mode(over_digits, mode, train, evaluation):
    resolved = config(over_digits, f"{TASK_TRAIN}=[1,2,1,1],{EVAL}=[1,1,2,1],{TPU}")

    runtime = effective_runtime(resolved, mode)

    assert runtime.train_input_partition_dims == train
    assert runtime.eval_input_partition_dims == evaluation
    assert runtime.parts == 2
    assert runtime.replace(train_input_partition_dims=None, eval_input_partition_dims=None) == (
        resolved.runtime.replace(eval_input_partition_dims=None)
    )


@pytest.mark.parametrize(
    ("said", "path", "code"),
    [
        (f"{TASK_TRAIN}=[1,2,1,1],{TRAIN}=[1,1,2,1]", TASK_TRAIN, "conflict"),
        (f"{TRAIN}=[1,2,2]", TRAIN, "wrong-type"),
        (f"{EVAL}=[1,1,2,2,1]", EVAL, "wrong-type"),
        (f"{TASK_TRAIN}=[2]", TASK_TRAIN, "wrong-type"),
        (f"{TRAIN}=[1,0,2,1]", TRAIN, "out-of-range"),
        (f"{TRAIN}=[1,-2,-2,1]", TRAIN, "out-of-range"),
        (f"{TRAIN}=[1,2.5,2,1]", TRAIN, "wrong-type"),
    ],
)
def test_partition_settings_invalid_in_every_mode_are_rejected(refused, said, path, code):
    (problem,) = refused(params_overrides=(said,))

    check([problem], (code, path))
    assert str(problem.origin) == "--params_override[0]"


# The override of digits, the mode, the path, and the code.
CASES = [
    (f"{TRAIN}=[1,2,2,1],{TPU}", "train_and_eval", TASK_EVAL, "conflict"),
    (f"{EVAL}=[1,2,2,1],{TPU}", "train_and_post_eval", EVAL, "conflict"),
    (f"{TRAIN}=[1,2,2,1],{EVAL}=[1,2,1,1],{TPU}", "train_and_eval", EVAL, "conflict"),
    (f"{TRAIN}=[1,2,1,1],runtime.distribution_strategy=off", "train", TRAIN, "not-supported"),
    (f"{TASK_TRAIN}=[1,2,2,1],{MIRRORED}", "train_and_eval", TASK_TRAIN, "not-supported"),
    (f"{EVAL}=[1,2,1,1],runtime.distribution_strategy=mirrored,runtime.num_gpus=2",
     "eval", EVAL, "not-supported"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "mode", "path", "code"), CASES)
def test_partition_dims_that_cannot_run_are_rejected(over_digits, said, mode, path, code):
    check(found(over_digits, mode, said), (code, path))


@pytest.mark.parametrize(
    "said",
    [
        "trainer.train_epochs=1",
        f"{TRAIN}=[1,1,1,1],{EVAL}=[1,1,1,1],runtime.distribution_strategy=off",
        f"{TRAIN}=[1,1,1,1],{EVAL}=[1,1,1,1],{MIRRORED}",
        f"{TRAIN}=[1,4,1,1],{EVAL}=[4,1,1,1],{TPU}",
        f"{BOTH},{TPU}",
        f"{TASK_TRAIN}=[1,2,2,1],{EVAL}=[1,4,1,1],{TPU}",
    ],
)
def test_valid_partition_dims_are_accepted(over_digits, said):
    for mode in MODES:
        assert found(over_digits, mode, said) == []


@pytest.mark.parametrize("mode", ["eval", "continuous_eval"])
def test_eval_modes_ignore_the_training_dims(over_digits, mode):
    override = f"{TRAIN}=[1,3,5,7],runtime.distribution_strategy=off"

    assert found(over_digits, mode, override) == []
    assert found(over_digits, "train", override) != []


@pytest.mark.parametrize(
    ("dims", "shape", "count"),
    [
        ((1, 2, 2, 1), (None, 32, 32, 3), 0),
        ((1, 2, 2, 1), (None, None, None, None), 0),
        ((2, 2, 2, 2), (7, 7, 7, 7), 4),
        ((1, 2, 2, 1), (8, 32, 32), 1),
        ((1, 1, 1, 2, 2), (8, 9, 32, 33, 4), 1),
    ],
)
def test_input_shapes_not_divisible_by_dims_are_reported(dims, shape, count):
    problems = [*shape_problems("some.path", dims, shape)]

    assert len(problems) == count
    assert {problem.path for problem in problems} <= {"some.path"}


def test_preflight_reports_partition_problems_with_their_origin(tmp_path):
    request = Request(experiment="digits", params_overrides=(f"{BOTH},{MIRRORED}",))

    with pytest.raises(ConfigError) as caught:
        check_before_start(resolve(request), "train_and_eval", tmp_path)

    problems = {(p.path, str(p.origin)) for p in caught.value.problems}
    assert problems == {(TRAIN, "--params_override[0]"), (EVAL, "--params_override[0]")}


def test_program_without_a_tpu_is_refused_in_the_first_step(over_digits):
    resolved = config(over_digits, f"{TASK_TRAIN}=[1,2,1,1]")
    partition = Partition(resolved, tf.distribute.get_strategy(), is_training=True)

    with raises("not-supported", TASK_TRAIN):
        partition.split_inputs(tf.zeros([8, 8, 8, 1]))
