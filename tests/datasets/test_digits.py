import numpy as np
import pytest

from orbit_runner.datasets.scikit_learn import load_digits


def test_digits_match_scikit_learn():
    from sklearn import datasets

    source, expected = load_digits(split="all"), datasets.load_digits()
    np.testing.assert_array_equal(source.arrays["image"][..., 0], expected.images)
    np.testing.assert_array_equal(source.arrays["label"], expected.target)
    assert source.arrays["image"].dtype == np.uint8
    assert source.arrays["label"].dtype == np.int32
    assert source.num_classes == 10


def test_every_fifth_example_belongs_to_the_test_split():
    complete, train, test = (load_digits(split=split) for split in ("all", "train", "test"))
    assert (train.size, test.size) == (1438, 359)
    for name in ("image", "label"):
        np.testing.assert_array_equal(test.arrays[name], complete.arrays[name][4::5])
        np.testing.assert_array_equal(
            train.arrays[name][:5], complete.arrays[name][[0, 1, 2, 3, 5]]
        )


def test_mean_and_std_match_the_pixels():
    source = load_digits(split="all")
    pixels = source.arrays["image"].astype(np.float64)
    assert source.mean == pytest.approx((pixels.mean(),), abs=1e-5)
    assert source.std == pytest.approx((pixels.std(),), abs=1e-5)
