"""The state of an object of the user: plain attributes, exact through JSON and files."""

import json
from collections import deque

import ml_dtypes
import numpy as np
import pytest

from orbit_runner.train.callbacks.object_state import (
    ArrayFiles,
    ObjectState,
    decode,
    encode,
)
from tests.support.problems import raises


class _Counter:
    def __init__(self, limit=3, data=None):
        self.limit = limit
        self.data = data
        self.count = 0
        self.best = None
        self.table = np.zeros(3)
        self.print = print
        self.waiting = deque([1])
        self.owner = self


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2**70,
        0.1,
        float("inf"),
        float("-inf"),
        "text",
        [1, [2.5, None]],
        (1, ("a",)),
        {1, 2},
        {"a": {2: (3.0, float("inf"))}, None: []},
        {"array": 1, "tuple": [1]},
        np.float32(0.1),
        np.int64(7),
        np.bool_(True),
    ],
    ids=repr,
)
def test_plain_value_is_the_same_after_json(value):
    decoded = decode(json.loads(json.dumps(encode(value, {}), allow_nan=False)), {})
    assert decoded == value
    assert type(decoded) is type(value)


def test_nan_is_kept():
    assert np.isnan(decode(json.loads(json.dumps(encode(float("nan"), {}))), {}))


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "<U3", ml_dtypes.bfloat16])
def test_arrays_are_kept_in_a_file(dtype, tmp_path):
    arrays = {}
    value = [np.arange(6).reshape(2, 3).astype(dtype), np.asarray(1).astype(dtype)]
    encoded = json.loads(json.dumps(encode(value, arrays)))
    name = ArrayFiles(tmp_path).write(arrays)
    decoded = decode(encoded, ArrayFiles(tmp_path).read(name))
    for one, other in zip(value, decoded, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("value", [print, deque(), object(), [object()], {1: print}, b"bytes"])
def test_other_values_are_no_state(value):
    with pytest.raises(TypeError, match="is not a plain value"):
        encode(value, {})


def test_object_array_is_not_a_state():
    with pytest.raises(TypeError, match="is not a plain value"):
        encode(np.array([None]), {})


def test_only_what_may_have_changed_is_stored():
    counter = _Counter(data=np.ones(4))
    state = ObjectState(counter, ["owner"])
    assert state.read({}) == {"count": 0, "best": None}
    assert state.unstored() == ["waiting"]
    counter.limit = 5
    counter.best = (1.5, 2)
    counter.table[1] = 1.0
    arrays = {}
    stored = json.loads(json.dumps(state.read(arrays)))
    assert set(stored) == {"limit", "count", "best", "table"}
    other = _Counter()
    ObjectState(other, ["owner"]).write(stored, arrays)
    assert (other.limit, other.count, other.best) == (5, 0, (1.5, 2))
    np.testing.assert_array_equal(other.table, [0.0, 1.0, 0.0])
    assert other.data is None


def test_other_argument_of_a_new_object_has_an_effect():
    stored = ObjectState(_Counter(limit=3), []).read({})
    counter = _Counter(limit=4)
    ObjectState(counter, []).write(stored, {})
    assert counter.limit == 4


def test_files_that_no_checkpoint_names_are_removed(tmp_path):
    files = ArrayFiles(tmp_path)
    names = []
    for number in range(8):
        arrays = {}
        encode(np.full(3, number), arrays)
        names.append(files.write(arrays))
        if number == 1:
            (tmp_path / "checkpoints").mkdir()
            (tmp_path / "checkpoints" / "ckpt-1.json").write_text(json.dumps({"a": names[1]}))
    assert files.write({}) == ""
    left = {path.name for path in (tmp_path / "callbacks").iterdir()}
    assert left == {names[1], *names[-4:]}


def test_equal_arrays_share_a_file(tmp_path):
    arrays = {}
    encode([np.ones(3), np.zeros(2), np.ones(3)], arrays)
    assert len(arrays) == 2
    assert ArrayFiles(tmp_path).write(arrays) == ArrayFiles(tmp_path).write(arrays)
    assert len([*(tmp_path / "callbacks").iterdir()]) == 1


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04damaged"])
def test_missing_or_damaged_file_is_an_error(content, tmp_path):
    if content is not None:
        (tmp_path / "callbacks").mkdir()
        (tmp_path / "callbacks" / "a.npz").write_bytes(content)
    with raises("damaged-checkpoint"):
        ArrayFiles(tmp_path).read("a.npz")
