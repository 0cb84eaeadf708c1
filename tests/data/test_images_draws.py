"""NumPy draws what the ops that augment images draw."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.augment import CropFlip
from orbit_runner.data.images.crops import central_window, inception_window
from orbit_runner.data.images.erasing import Erasing
from orbit_runner.data.images.mixing import Mixer, Mixing
from orbit_runner.data.images.train_image import Preprocessing, augment, jitter
from orbit_runner.data.order import image_draws as draws

_IDS = np.arange(400)
_EPOCHS = _IDS % 7
_KEY = 5, _IDS, _EPOCHS


def _tensors() -> tuple[int, tf.Tensor, tf.Tensor]:
    return 5, tf.constant(_IDS), tf.constant(_EPOCHS)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 4])
def test_crops_and_flips(padding: int, flip: bool) -> None:
    found = draws.crop_flips(*_KEY, padding=padding, flip=flip)

    expected = CropFlip(padding, flip).draw(*_tensors())
    for one, other in zip((found.top, found.left, found.flipped), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("areas", [(0.08, 1.0), (0.5, 0.9), (0.9, 1.0)])
def test_windows_of_random_area(areas: tuple[float, float]) -> None:
    sizes = np.random.default_rng(0).integers(2, 600, (len(_IDS), 2)).tolist()
    sizes[0], sizes[1] = [64, 64], [1, 1]
    columns = tf.data.Dataset.from_tensor_slices((np.array(sizes, np.int32), _IDS, _EPOCHS))
    windows = columns.map(lambda size, *key: inception_window(size, areas, 0.875, 5, *key))
    random = 0
    for row, expected in enumerate(windows.as_numpy_iterator()):
        height, width = sizes[row]
        found = draws.area_crop(5, int(_IDS[row]), int(_EPOCHS[row]), (height, width), areas)
        chosen = central_window(tf.constant(sizes[row]), 0.875) if found is None else found
        np.testing.assert_array_equal(chosen, expected)
        random += found is not None
    assert random > 50


def test_flips_of_images_with_random_crops() -> None:
    image = np.zeros((4, 8, 3), np.uint8)
    image[:, :4] = 255
    preprocessing = Preprocessing(center_crop_fraction=None, flip=True)

    flipped = draws.flips(*_KEY)

    for number in range(40):
        key = tf.constant(_IDS[number]), tf.constant(_EPOCHS[number])
        seen = augment(
            tf.constant(image), *key, shape=(4, 8, 3), seed=5, preprocessing=preprocessing
        )
        assert (int(seen[0, 0, 0]) == 0) == flipped[number]


def test_factors_of_color_jitter() -> None:
    # Neither so dark nor so bright that a value is limited.
    image = np.random.default_rng(0).uniform(80, 120, (4, 4, 3)).astype(np.float32)

    factors = draws.jitters(*_KEY, strength=0.4)

    for number in range(40):
        brightness, contrast, saturation = factors[number]
        expected = image * brightness
        expected = expected.mean((0, 1)) * (1 - contrast) + expected * contrast
        gray = expected @ np.array([[0.2989], [0.587], [0.114]])
        expected = gray * (1 - saturation) + expected * saturation
        key = tf.constant(_IDS[number]), tf.constant(_EPOCHS[number])
        seen = jitter(tf.constant(image), 0.4, 5, *key)
        np.testing.assert_allclose(seen, expected, rtol=1e-4)
    assert len(np.unique(factors)) > 1000
    assert 0.6 <= factors.min() < 0.62
    assert 1.38 < factors.max() < 1.4


def test_erased_rectangles() -> None:
    image = tf.zeros([40, 30, 3], tf.uint8)
    settings = {"probability": 0.5, "min_area": 0.05, "max_area": 0.5, "min_aspect": 0.3}
    erase, found = tf.function(Erasing(**settings)), []
    for number, epoch in zip(_IDS[:100], _EPOCHS[:100], strict=True):
        rectangle = draws.erased_rectangle(5, number, epoch, (40, 30), **settings)
        noise = np.any(erase(image, 5, tf.constant(number), tf.constant(epoch)).numpy(), axis=2)
        if rectangle is None:
            assert not noise.any()
            continue
        top, left, height, width = rectangle
        # Noise may be black anywhere, but hardly in a whole row or column.
        rows, columns = np.flatnonzero(noise.any(axis=1)), np.flatnonzero(noise.any(axis=0))
        assert (top, left) == (rows[0], columns[0])
        assert (height, width) == (rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1)
        found.append(rectangle)
    assert 30 < len(found) < 70


@pytest.mark.parametrize(
    "settings",
    [
        {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "prob": 0.7, "switch_prob": 0.5},
        {"mixup_alpha": 0.3, "cutmix_alpha": 0.0, "prob": 1.0, "switch_prob": 0.5},
        {"mixup_alpha": 0.0, "cutmix_alpha": 1.0, "prob": 1.0, "switch_prob": 0.5},
    ],
)
def test_partners_and_shares_of_mixtures(settings: dict[str, float]) -> None:
    size = len(_IDS)
    images = tf.reshape(tf.constant([0, 200] * (size // 2), tf.uint8), [-1, 1, 1, 1])
    images = tf.broadcast_to(images, [size, 24, 20, 1])
    labels = tf.constant([0, 1] * (size // 2))
    mixer = Mixer(Mixing(num_classes=2, label_smoothing=0.0, **settings), 5)

    found = draws.mixtures(*_KEY, size=(24, 20), **settings)

    seen, classes = mixer(images, labels, tf.ones([size], tf.bool), *_tensors()[1:])
    share = tf.gather(classes, labels, batch_dims=1)
    np.testing.assert_allclose(found.share, share, atol=1e-6)
    assert found.mixed[found.share < 1].all()
    assert (found.share[~found.mixed] == 1).all()
    assert (~found.mixed).any() == (settings["prob"] < 1)
    # Mixup changes all pixels alike, and CutMix replaces some of them.
    values = [len(np.unique(image)) for image in seen.numpy()]
    assert {values[row] for row in np.flatnonzero(found.mixed & ~found.cut)} <= {1}
    partial = found.mixed & found.cut & (found.share > 0) & (found.share < 1)
    assert {values[row] for row in np.flatnonzero(partial)} <= {2}
