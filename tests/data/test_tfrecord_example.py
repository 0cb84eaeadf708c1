import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.tfrecord.example import features_of, value_of
from tests.support.tfrecords import example


@pytest.mark.parametrize("size", [0, 127, 40_000])
def test_parsed_features_match_tensorflow(size):
    encoded = np.random.default_rng(size).bytes(size)
    record = example(encoded, -5)
    features = features_of(record)
    expected = tf.train.Example.FromString(record).features.feature
    assert [*features] == sorted(expected)
    for name, value in expected.items():
        assert features[name].SerializeToString() == value.SerializeToString()
    assert value_of(features["image/encoded"], "bytes") == encoded
    with pytest.raises(ValueError, match="got 1 values of int64"):
        value_of(features["image/class/label"], "bytes")
    with pytest.raises(ValueError, match=r"got 0 values$"):
        value_of(tf.train.Feature())


def test_truncated_example_is_rejected():
    record = example(b"\x89PNG" * 50, 3)
    for length in range(1, len(record)):
        with pytest.raises(ValueError, match=r"not a tf\.Example"):
            features_of(record[:length])
