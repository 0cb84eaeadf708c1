import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.arrays import Gathered
from orbit_runner.data.augment import CropFlip, CroppedImages

_SEED = 5
_IMAGES = np.random.default_rng(1).integers(1, 256, (30, 8, 6, 3)).astype(np.uint8)


def _keys(size=400):
    random = np.random.default_rng(2)
    return tf.constant(random.integers(0, 30, size)), tf.constant(random.integers(0, 99, size))


def _reference(augmentation, images, ids, epochs):
    drawn = [values.numpy() for values in augmentation.draw(_SEED, ids, epochs)]
    margin = augmentation.padding
    out = []
    for number, top, left, flipped in zip(ids.numpy(), *drawn, strict=True):
        canvas = np.zeros((8 + 2 * margin, 6 + 2 * margin, images.shape[3]), images.dtype)
        canvas[margin : margin + 8, margin : margin + 6] = images[number]
        crop = canvas[top : top + 8, left : left + 6]
        out.append(crop[:, ::-1] if flipped else crop)
    return np.stack(out)


@pytest.mark.parametrize(
    ("padding", "flip", "images"),
    [
        (0, True, _IMAGES),
        (1, True, _IMAGES[..., :1]),
        (4, False, _IMAGES),
        (4, True, _IMAGES.astype(np.float32)),
    ],
)
def test_augmented_pixels_match_a_numpy_reference(padding, flip, images):
    augmentation = CropFlip(padding, flip)
    read = tf.function(CroppedImages(images, augmentation, _SEED))
    got = read(*_keys())
    assert got.dtype == images.dtype
    np.testing.assert_array_equal(got, _reference(augmentation, images, *_keys()))


def test_augmented_image_does_not_depend_on_its_batch():
    read = CroppedImages(_IMAGES, CropFlip(), _SEED)
    ids, epochs = _keys(50)
    together, backwards = read(ids, epochs).numpy(), read(ids[::-1], epochs[::-1]).numpy()
    np.testing.assert_array_equal(together, backwards[::-1])
    for place in range(50):
        alone = read(ids[place : place + 1], epochs[place : place + 1])
        np.testing.assert_array_equal(alone[0], together[place])


def test_repeated_image_is_stored_once():
    many = Gathered(_IMAGES[:1], np.zeros(10**6, np.int32))
    ids, epochs = _keys()
    got = CroppedImages(many, CropFlip(), _SEED)(ids, epochs)
    few = np.repeat(_IMAGES[:1], 30, axis=0)
    np.testing.assert_array_equal(got, _reference(CropFlip(), few, ids, epochs))
