import numpy as np

from orbit_runner.data import synthetic
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.data.text.source import EOS


def test_synthetic_sentences_respect_their_settings():
    settings = {"num_examples": 500, "vocab_size": 50, "max_length": 20}
    with source_cache_scope():  # Otherwise `second` would be the same object.
        source = synthetic.load_pairs(seed=3, **settings)
    assert source.size == 500
    for rows in (source.sources, source.targets):
        assert (rows.values[rows.offsets[1:] - 1] == EOS).all()
        inner = np.delete(rows.values, rows.offsets[1:] - 1)
        assert inner.min() == 3
        assert inner.max() == 49
        assert rows.lengths.max() == 20
        assert rows.lengths.min() == 2
        assert rows.values.dtype == np.int32
    second = synthetic.load_pairs(seed=3, **settings)
    np.testing.assert_array_equal(second.targets.values, source.targets.values)
    other = synthetic.load_pairs(seed=4, **settings)
    assert not np.array_equal(other.targets.values, source.targets.values)
