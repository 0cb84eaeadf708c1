import numpy as np

from orbit_runner.data import synthetic


def _images(**changes):
    settings = {"num_examples": 2000, "seed": 3, "input_size": (4, 5, 3), "num_classes": 7}
    return synthetic.load_images(**settings | changes)


def test_random_images_cover_their_range():
    source = _images()
    assert source.size == 2000
    assert source.num_classes == 7
    image, label = (source.arrays[name] for name in ("image", "label"))
    assert (image.shape, image.dtype) == ((2000, 4, 5, 3), np.uint8)
    assert (image.min(), image.max()) == (0, 255)
    assert set(label) == set(range(7))
    assert (label.shape, label.dtype) == ((2000,), np.int32)


def test_images_depend_only_on_the_seed():
    images = _images().arrays["image"]
    np.testing.assert_array_equal(images[:9], _images(num_examples=9).arrays["image"])
    assert (images != _images(seed=4).arrays["image"]).any()
    assert (images != _images(seed=-1).arrays["image"]).any()
