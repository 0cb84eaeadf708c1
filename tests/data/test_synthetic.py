import numpy as np
import pytest

from orbit_runner.data import synthetic
from tests.support.problems import raises

_IMAGE = {"shape": [4, 5, 3], "dtype": "uint8"}
_FEATURES = {
    "image": _IMAGE,
    "label": {"shape": [], "dtype": "int32", "low": 2, "high": 7, "value": 3},
    "text": {"mask": {"shape": [6], "dtype": "bool"}, "vector": {"shape": [8]}},
}


def test_random_values_cover_their_range():
    source = synthetic.load_arrays(features=_FEATURES, num_examples=2000, seed=3)
    assert source.size == 2000
    assert source.num_classes == 7
    image, label, text = (source.arrays[name] for name in ("image", "label", "text"))
    assert (image.shape, image.dtype) == ((2000, 4, 5, 3), np.uint8)
    assert (image.min(), image.max()) == (0, 255)
    assert set(label) == {2, 3, 4, 5, 6}
    assert (label.shape, label.dtype) == ((2000,), np.int32)
    assert set(text["mask"].ravel()) == {False, True}
    assert text["vector"].dtype == np.float32
    assert abs(text["vector"].mean()) < 0.05
    assert abs(text["vector"].std() - 1) < 0.05


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_random_floats_cover_their_range(dtype):
    leaf = {"shape": [10], "dtype": dtype, "low": -2, "high": 0.5}
    values = synthetic.load_arrays(features={"x": leaf}, num_examples=500).arrays["x"]
    assert values.dtype == dtype
    assert -2 <= values.min() < -1.9
    assert 0.4 < values.max() <= 0.5


def test_array_depends_only_on_seed_and_path():
    def make(seed, **features):
        return synthetic.load_arrays(features=features, num_examples=9, seed=seed).arrays

    alone, together = make(1, a=_IMAGE), make(1, b=_IMAGE, a=_IMAGE)
    np.testing.assert_array_equal(alone["a"], together["a"])
    assert (together["a"] != together["b"]).any()
    assert (alone["a"] != make(2, a=_IMAGE)["a"]).any()
    assert (alone["a"] != make(-1, a=_IMAGE)["a"]).any()


def test_constant_data_uses_the_memory_of_one_example():
    source = synthetic.load_arrays(features=_FEATURES, num_examples=10**12, kind="constant")
    assert source.size == 10**12
    assert source.arrays["image"].nbytes == source.arrays["image"][0].nbytes
    assert source.arrays["label"][10**11] == 3
    assert not source.arrays["image"][7].any()


@pytest.mark.parametrize(
    ("features", "path"),
    [
        ({}, "features"),
        ({"shape": [2]}, "features"),
        ({"a": {"b": 3}}, "features.a.b"),
        ({"a": {"b": {"shape": "3"}}}, "features.a.b.shape"),
        ({"a": {"shape": [0]}}, "features.a.shape"),
        ({"a": {"shape": [], "dtype": "str"}}, "features.a.dtype"),
        ({"a": {"shape": [], "minimum": 1}}, "features.a.minimum"),
        ({"a": {"shape": [], "low": "0", "high": 1}}, "features.a.low"),
        ({"a": {"shape": [], "low": 0}}, "features.a"),
        ({"a": {"shape": [], "dtype": "int32", "low": 5, "high": 5}}, "features.a"),
        ({"a": {"shape": [], "dtype": "uint8", "high": 257}}, "features.a"),
    ],
)
def test_invalid_feature_specification_is_rejected_with_its_path(features, path):
    with raises("out-of-range") as caught:
        synthetic.load_arrays(features=features, num_examples=2)
    assert str(caught.value).startswith(f"synthetic: {path}: got ")
