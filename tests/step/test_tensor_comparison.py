"""The tensors of a step are compared in the order in which they are computed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from orbit_runner.step.tensor_comparison import (
    StepTensor,
    first_difference,
    write_step,
)

Rows = Sequence[tuple[str, str, Any]]
BASE = (
    ("weights", "w", [1.0, 2.0]),
    ("slots", "m", [0.0]),
    ("batch", "labels", [3, 4, 5]),
    ("output", "dense", [[1.0, 2.0], [3.0, 4.0]]),
    ("loss", "", 0.5),
    ("gradient", "w", [1.0, np.nan]),
    ("update", "w", [0.0, 0.0]),
)


def _difference(folder, left, right, examples=(None, None)):
    paths = folder / "a.npz", folder / "b.npz"
    for path, rows, ids in zip(paths, (left, right), examples, strict=True):
        tensors = [StepTensor(place, name, np.asarray(value)) for place, name, value in rows]
        write_step(path, 3, tensors, ids)
    return first_difference(*paths)


def _with(**values):
    return [(place, name, values.get(place, value)) for place, name, value in BASE]


def test_equal_steps_have_no_difference(tmp_path):
    assert _difference(tmp_path, BASE, BASE, ([1, 2, 3], [1, 2, 3])) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"weights": [1.0, 2.5], "loss": 0.7}, "the weights w before step 3"),
        ({"slots": [1.0], "update": [1.0, 0.0]}, "the optimizer slots m before step 3"),
        ({"batch": [3, 4, 6], "loss": 0.7}, "the labels of the batch at step 3"),
        ({"output": [[1.0, 2.0], [3.0, 5.0]]}, "the output of dense at step 3"),
        ({"loss": 0.7, "gradient": [2.0, 2.0]}, "the loss at step 3"),
        ({"gradient": [1.5, np.nan], "update": [1.0, 0.0]}, "the gradient of w at step 3"),
        ({"update": [0.0, 1.0]}, "the update of w at step 3"),
    ],
)
def test_first_differing_tensor_is_reported(changes, text, tmp_path):
    difference = _difference(tmp_path, BASE, _with(**changes))
    assert str(difference) == text
    assert difference.differing == 1
    assert difference.examples == []  # No record of them.


def test_rows_of_other_tensors_are_no_examples(tmp_path):
    ids = [7, 17]
    difference = _difference(tmp_path, BASE, _with(gradient=[1.5, 9.0]), (ids, ids))
    assert (str(difference), difference.examples) == ("the gradient of w at step 3", [])


def test_examples_of_the_rows_that_differ_are_named(tmp_path):
    ids = [7, 17, 2]
    difference = _difference(tmp_path, BASE, _with(batch=[3, 0, 5]), (ids, ids))
    assert (difference.name, difference.examples, difference.differing, difference.total) == (
        "labels",
        [17],
        1,
        3,
    )


def test_other_examples_come_before_the_values_of_the_batch(tmp_path):
    difference = _difference(tmp_path, BASE, _with(batch=[4, 3, 5]), ([7, 17, 2], [17, 7, 2]))
    assert str(difference) == "the examples of the batch at step 3"
    assert (difference.problem, difference.differing) == ("7, 17, 2 and 17, 7, 2", 2)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (np.zeros([2, 3]), "float64 (2, 2) and float64 (2, 3)"),
        (np.zeros([2, 2], np.float32), "float64 (2, 2) and float32 (2, 2)"),
    ],
)
def test_other_shapes_and_types_are_reported(value, problem, tmp_path):
    difference = _difference(tmp_path, BASE, _with(output=value))
    assert (difference.name, difference.problem) == ("dense", problem)


def test_tensor_that_only_one_run_has_is_reported(tmp_path):
    difference = _difference(tmp_path, BASE, [row for row in BASE if row[0] != "output"])
    assert (difference.name, difference.problem) == ("dense", "only A has it")


def test_slots_of_another_optimizer_are_no_difference(tmp_path):
    other = [("slots", "v", 1.0) if row[0] == "slots" else row for row in BASE]
    assert _difference(tmp_path, BASE, other) is None


def test_text_can_be_compared(tmp_path):
    left, right = (np.array([b"a", text], object) for text in (b"b", b"c"))
    difference = _difference(tmp_path, _with(batch=left), _with(batch=right), ([1, 2], [1, 2]))
    assert (difference.differing, difference.examples) == (1, [2])
