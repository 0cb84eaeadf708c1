import numpy as np
import pytest

from orbit_runner.data import synthetic
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.data.text.source import EOS


@pytest.mark.parametrize("kind", ["random", "constant"])
def test_synthetic_sentences_respect_their_settings(kind):
    settings = {"num_examples": 500, "vocab_size": 50, "max_length": 20, "kind": kind}
    with source_cache_scope():  # Otherwise `second` would be the same object.
        source = synthetic.load_pairs(seed=3, **settings)
    assert source.size == 500
    for rows in (source.sources, source.targets):
        assert (rows.values[rows.offsets[1:] - 1] == EOS).all()
        inner = np.delete(rows.values, rows.offsets[1:] - 1)
        assert inner.min() == 3
        assert inner.max() == (49 if kind == "random" else 3)
        assert rows.lengths.max() == 20
        assert rows.lengths.min() == (2 if kind == "random" else 20)
        assert rows.values.dtype == np.int32
    second = synthetic.load_pairs(seed=3, **settings)
    np.testing.assert_array_equal(second.targets.values, source.targets.values)
    other = synthetic.load_pairs(seed=4, **settings)
    assert np.array_equal(other.targets.values, source.targets.values) == (kind == "constant")
