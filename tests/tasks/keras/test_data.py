"""Arrays of the task `keras`: from functions, from files, and parts for validation."""
# ruff: noqa: E501 (one line a case)

import keras
import numpy as np
import pandas
import pytest

from orbit_runner.config.schema.task_data import task_data
from orbit_runner.errors import DataError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.keras.sources import mismatch_problems, section_source
from orbit_runner.tasks.keras.user_arrays import arrays_of, keep_arrays
from tests.support.keras_models import NO_VALIDATION, keras_config
from tests.support.problems import check, pairs, raises

X, Y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 2])
X2 = np.ones([3, 4], np.float32)
_TWO = {"x.0": ((2,), "float32"), "x.1": ((4,), "float32"), "y": ((), "int64")}


class Batches(keras.utils.PyDataset):
    """Two batches."""

    def __init__(self, item):
        super().__init__()
        self._item = item

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self._item


def frames():
    """Returns frames of pandas, whose index is no part of the data."""
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y}, index=[7, 8, 9])
    return frame[["a", "b"]], frame["y"], frame["y"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((X, Y), {"x": ((2,), "float32"), "y": ((), "int64")}),
        ([X.tolist(), Y.tolist()], {"x": ((2,), "float32"), "y": ((), "int64")}),
        ((X, Y > 0, Y), {"x": ((2,), "float32"), "y": ((), "int32"), "w": ((), "float32")}),
        ({"x": X, "y": Y}, {"x": ((2,), "float32"), "y": ((), "int64")}),
        ({"a": X, "b": Y, "y": Y}, {"x.a": ((2,), "float32"), "x.b": ((), "int64"), "y": ((), "int64")}),
        ((({"a": X}), Y), {"x.a": ((2,), "float32"), "y": ((), "int64")}),
        ((np.array(["one", "two", "six"]), Y), {"x": ((), "string"), "y": ((), "int64")}),
        ((X.astype(np.uint8), X), {"x": ((2,), "uint8"), "y": ((2,), "float32")}),
        ((X, Y, X), {"x": ((2,), "float32"), "y": ((), "int64"), "w": ((2,), "float32")}),
        (frames(), {"x": ((2,), "float32"), "y": ((), "int64"), "w": ((), "float32")}),
        # A list of arrays has one for each input or output.
        (([X, X2], Y), _TWO),
        (((X, X2), [0, 1, 0]), _TWO),
        ({"x": [X, X2], "y": Y}, _TWO),
        (Batches(((X, X2), Y)), _TWO),
        (([X], Y), {"x.0": ((2,), "float32"), "y": ((), "int64")}),
        ((X, [Y, X2]), {"x": ((2,), "float32"), "y.0": ((), "int64"), "y.1": ((4,), "float32")}),
        (([*X], [*Y]), {"x": ((2,), "float32"), "y": ((), "int64")}),
        # Without labels.
        (X, {"x": ((2,), "float32"), "y": ((0,), "float32")}),
        ((X,), {"x": ((2,), "float32"), "y": ((0,), "float32")}),
        ((X, None, Y), {"x": ((2,), "float32"), "y": ((0,), "float32"), "w": ((), "float32")}),
        ({"x": X}, {"x": ((2,), "float32"), "y": ((0,), "float32")}),
        ({"a": X}, {"x.a": ((2,), "float32"), "y": ((0,), "float32")}),
    ],
)  # fmt: skip
def test_every_form_of_data_becomes_arrays(found, expected):
    arrays = arrays_of(found, "data")
    assert arrays.specs == expected
    assert arrays.size == (6 if isinstance(found, Batches) else 3)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (3, "got <class 'int'>, expected x, (x, y), (x, y, w), or a dict"),
        ((X, Y, Y, Y), "got <class 'tuple'>, expected x, (x, y)"),
        ({"y": Y}, "got keys y, expected x, (x, y)"),
        ((X, Y[:2]), "expected arrays of the same size"),
        ((X, 3), "got y int64 [], expected an array"),
        (
            (np.array([object()] * 3), Y),
            "got x object [3], expected an array of numbers or strings",
        ),
        (
            (X, np.array(["ham", "spam", "ham"])),
            "got y of strings, such as 'ham', expected numbers",
        ),
        ((np.where(X > 3, np.inf, X), Y), "got x that is not finite in example 2"),
        ((X, Y, -X), "got w float32 [3, 2], expected numbers of at least 0"),
        ((X, Y, -Y), "got w int64 [3], expected numbers of at least 0"),
        ((X, Y, np.zeros(3)), "got w of zeros, by which no example counts"),
        ((np.ma.masked_less(X, 1), Y), "got x with a mask, which would be ignored"),
        ((X, [np.ma.masked_equal(Y, 1), Y]), "got y.0 with a mask"),
        ((X, np.ma.masked_equal(Y, 1)), "got y with a mask"),
        (({"a": np.ma.masked_less(X, 1)}, Y), "got x.a with a mask"),
        (([np.ma.masked_less(X, 1), X], Y), "got x.0 with a mask"),
        ((X, Y, np.ma.masked_less(Y, 1)), "got w with a mask"),
    ],
)
def test_unusable_data_is_an_error(found, message):
    with pytest.raises(DataError) as caught:
        arrays_of(found, "data")
    assert message in str(caught.value)


def test_split_that_leaves_nothing_is_an_error():
    config = keras_config(
        task__train_data__arguments="{count: 3}",
        **NO_VALIDATION,
        task__validation_split=0.0001,
    ).task
    with raises("empty-data"):
        section_source(config, "validation_data")


def test_files_of_numpy_are_read_and_joined(tmp_path):
    for index in range(2):
        np.savez(tmp_path / f"part{index}.npz", **{"x": X + index, "y.kind": Y, "y.size": Y})
    config = _npz(tmp_path / "part0.npz", tmp_path / "part1.npz")
    source = section_source(config, "train_data")

    np.testing.assert_array_equal(source.arrays["x"], np.concatenate([X, X + 1]))
    assert [*source.arrays["y"]] == ["kind", "size"]
    assert [row.digest[:7] for row in task_data(config).files()["train_data"]] == ["sha256:"] * 2


def test_file_with_other_arrays_is_reported_with_input_path(tmp_path):
    np.savez(tmp_path / "other.npz", y=Y)
    check(task_data(_npz(tmp_path / "other.npz")).problems(), ("bad-data", "train_data.input_path"))


def _npz(*paths):
    return keras_config(
        task__train_data__source="npz",
        task__train_data__function="''",
        task__train_data__input_path=",".join(map(str, paths)),
    ).task


def test_changed_arrays_change_the_record_of_the_data():
    before, after = (
        keras_config(task__train_data__arguments=f"{{seed: {seed}}}").data.files()
        for seed in (1, 2)
    )

    assert before["validation_data"] == after["validation_data"]
    assert [row.name for row in before["train_data"]] == ["x", "y"]
    assert before["train_data"] != after["train_data"]


def test_validation_data_of_another_shape_is_reported():
    train, validation = arrays_of((X, Y), "a"), arrays_of((X[:, :1], Y), "b")

    assert pairs(mismatch_problems(train.specs, validation.specs)) == [
        ("validation_data.source", "got x float32 [1], expected float32 [2] as in train_data")
    ]
    assert list(mismatch_problems(train.specs, train.specs)) == []


def test_damaged_file_of_passed_arrays_is_named(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "abc.npz").write_bytes(b"PK")
    with raises("damaged-file"):
        keep_arrays("abc", Assets(tmp_path))


def test_digest_without_arrays_in_this_process_is_an_error():
    with raises("no-effect", "task.train_data.digest"):
        keras_config(task__train_data__digest="abc")
    config = keras_config(
        task__train_data__source="memory",
        task__train_data__function="''",
        task__train_data__digest="abc",
    ).task
    with raises("not-repeatable"):
        section_source(config, "train_data")
