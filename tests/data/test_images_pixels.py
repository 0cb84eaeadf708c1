"""Decoding and augmentation of one image, compared with Model Garden's functions and numpy."""

import numpy as np
import pytest
import tensorflow as tf
from official.vision.dataloaders import classification_input
from official.vision.ops import preprocess_ops

from orbit_runner.data.images import NATURAL_MEAN, NATURAL_STD
from orbit_runner.data.images.decode import decode_for_evaluation, decode_window, inception_window
from orbit_runner.data.images.train_image import (
    Erasing,
    Preprocessing,
    augment,
    auto_augment,
    jitter,
    rand_augment,
)
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig, make_preprocessing
from tests.support.images import jpeg, photo, png
from tests.support.problems import raises

_SHAPE = (24, 20, 3)
_RANDAUG = {
    "num_layers": 2, "magnitude": 9.0, "cutout_const": 10.0, "translate_const": 5.0,
    "prob_to_apply": None, "exclude_ops": ["Cutout"],
}  # fmt: skip


def _key(number, epoch=0):
    return tf.constant(number, tf.int64), tf.constant(epoch, tf.int64)


@pytest.mark.parametrize(
    ("fraction", "method", "size"),
    [
        (0.875, "bilinear", (40, 61)),
        (0.5, "bicubic", (40, 61)),
        (1.0, "bilinear", (30, 17)),
        (0.875, "bicubic", (21, 21)),
    ],
)
def test_evaluation_image_matches_model_garden(fraction, method, size):
    encoded = jpeg(3, *size)
    parser = classification_input.Parser(
        _SHAPE[:2], 10, center_crop_fraction=fraction, tf_resize_method=method
    )
    seen = parser._parse_eval_image({"image/encoded": tf.constant(encoded)})
    pixels = seen * tf.constant(NATURAL_STD) + tf.constant(NATURAL_MEAN)
    ours = decode_for_evaluation(
        tf.constant(encoded), _SHAPE, center_crop_fraction=fraction, method=method
    )
    assert ours.dtype == tf.uint8
    expected = np.clip(pixels.numpy(), 0, 255)
    np.testing.assert_allclose(ours.numpy().astype(np.float32), expected, atol=0.501)


def test_normalization_constants_match_model_garden():
    assert NATURAL_MEAN == preprocess_ops.MEAN_RGB
    assert NATURAL_STD == preprocess_ops.STDDEV_RGB


def test_image_formats_and_channel_counts_decode_alike():
    image = photo(5, 30, 40)
    encoded = tf.constant(png(5, 30, 40))
    options = {"shape": _SHAPE, "seed": 0, "preprocessing": Preprocessing()}
    expected = augment(tf.constant(image), *_key(0), **options)
    np.testing.assert_array_equal(decode_for_evaluation(encoded, _SHAPE), expected)
    grey = tf.image.rgb_to_grayscale(image)
    three = augment(grey, *_key(0), **options)
    assert three.shape == _SHAPE
    np.testing.assert_array_equal(three[..., 0], three[..., 2])
    assert decode_for_evaluation(encoded, (24, 20, 1)).shape == (24, 20, 1)


@pytest.mark.parametrize("encode", [jpeg, png])
def test_decoded_window_matches_a_crop_of_the_full_image(encode):
    encoded = tf.constant(encode(7, 50, 60))
    part = decode_window(encoded, 3, lambda size: tf.constant([7, 11, 20, 30]))
    image = tf.io.decode_image(encoded)
    np.testing.assert_array_equal(part, image[7:27, 11:41])


def test_crop_windows_have_the_requested_areas_and_aspect_ratios():
    size = tf.constant([375, 500])
    drawn = np.array(
        [inception_window(size, (0.08, 0.6), 0.875, 1, *_key(k)).numpy() for k in range(300)]
    )
    top, left, height, width = drawn.T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= 375).all()
    assert (left + width <= 500).all()
    area, aspect = height * width / (375 * 500), width / height
    assert area.min() > 0.07
    assert area.max() < 0.62
    assert aspect.min() > 0.74
    assert aspect.max() < 1.35
    # For a given aspect ratio the height is uniform, so the mean area is that of its square.
    low, high = 0.08**0.5, 0.6**0.5
    assert abs(area.mean() - (high**3 - low**3) / (high - low) / 3) < 0.03
    assert aspect.std() > 0.1
    window = inception_window(size, (0.08, 0.6), 0.875, 1, *_key(5)).numpy()
    np.testing.assert_array_equal(window, drawn[5])
    for other in (_key(5, 1), _key(6)):
        assert (inception_window(size, (0.08, 0.6), 0.875, 1, *other).numpy() != drawn[5]).any()
    assert (inception_window(size, (0.08, 0.6), 0.875, 2, *_key(5)).numpy() != drawn[5]).any()


def test_center_crop_is_used_if_no_window_fits():
    # Aspect ratios of at most 4/3 cover less than 5 % of such a strip.
    window = inception_window(tf.constant([10, 300]), (0.5, 1.0), 0.5, 1, *_key(0))
    np.testing.assert_array_equal(window, [2, 147, 5, 5])


def test_half_of_the_images_are_flipped_and_otherwise_unchanged():
    raw = tf.constant(photo(1, 24, 20))
    plain = Preprocessing(center_crop_fraction=None)
    flips = Preprocessing(center_crop_fraction=None, flip=True)
    seen = [augment(raw, *_key(k), shape=_SHAPE, seed=1, preprocessing=flips) for k in range(60)]
    straight = augment(raw, *_key(0), shape=_SHAPE, seed=1, preprocessing=plain)
    np.testing.assert_array_equal(straight, raw)
    same = [bool(tf.reduce_all(image == raw)) for image in seen]
    mirrored = [bool(tf.reduce_all(image == raw[:, ::-1])) for image in seen]
    assert all(one != other for one, other in zip(same, mirrored, strict=True))
    assert 15 < sum(same) < 45


def test_color_jitter_stays_within_its_strength():
    image = tf.fill([8, 8, 3], 100.0)
    values = np.array([jitter(image, 0.3, 1, *_key(k)).numpy()[0, 0, 0] for k in range(200)])
    # Contrast and saturation do not change a gray image; only brightness does.
    assert values.min() >= 70
    assert values.max() <= 130
    assert values.min() < 75
    assert values.max() > 125
    assert abs(values.mean() - 100) < 4
    coloured = tf.cast(photo(2, 24, 20), tf.float32)
    jittered = jitter(coloured, 0.3, 1, *_key(1))
    np.testing.assert_array_equal(jittered, jitter(coloured, 0.3, 1, *_key(1)))
    assert np.abs(jittered - coloured).max() > 1


def test_erasing_fills_one_rectangle_of_the_requested_area():
    image = tf.fill([60, 80, 3], tf.constant(7, tf.uint8))
    shares = []
    for number in range(60):
        erased = Erasing(probability=0.5, min_area=0.1, max_area=0.2)(image, 1, *_key(number))
        changed = (erased.numpy() != 7).any(axis=-1)
        if not changed.any():
            continue
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        box = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
        assert changed.sum() > 0.9 * box
        shares.append(box / changed.size)
    assert 15 < len(shares) < 45
    assert min(shares) > 0.08
    assert max(shares) < 0.22
    always = Erasing(probability=1.0, min_area=0.1, max_area=0.2)
    keys = ((1, *_key(5)), (1, *_key(5, 1)), (1, *_key(6)), (2, *_key(5)))
    assert len({always(image, *key).numpy().tobytes() for key in keys}) == 4
    np.testing.assert_array_equal(always(image, *keys[0]), always(image, *keys[0]))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["randaug", "autoaug"])
def test_augmentation_policies_depend_only_on_seed_example_and_epoch(policy):
    augment = (
        rand_augment(**_RANDAUG)
        if policy == "randaug"
        else auto_augment(augmentation_name="v0", cutout_const=10.0, translate_const=5.0)
    )
    image = tf.constant(photo(4, 24, 20))

    def drawn(seed):
        return tf.function(lambda k: augment(image, seed, k % 5, k // 5), autograph=False)

    def rows(draw, numbers):
        return np.stack([draw(tf.constant(k, tf.int64)) for k in numbers])

    draw = drawn(1)
    all_rows = rows(draw, range(15))
    np.testing.assert_array_equal(rows(draw, range(14, 6, -1)), all_rows[:6:-1])
    assert len({pixels.tobytes() for pixels in all_rows}) > 9
    assert (rows(drawn(2), range(15)) != all_rows).any(axis=(1, 2, 3)).sum() > 9


def test_unknown_excluded_operation_is_rejected():
    with raises("unknown-name"):
        rand_augment(**_RANDAUG | {"exclude_ops": ["Cutoff"]})


@pytest.mark.parametrize("augment", ["none", "crop", "crop_flip", "inception"])
@pytest.mark.parametrize("flips", [False, True])
def test_only_inception_crops_vary_in_size_and_are_flipped_one_by_one(augment, flips):
    config = ImageDataConfig(source="image_folder", augment=augment, aug_rand_hflip=flips)
    preprocessing = make_preprocessing(config, is_in_memory=False)
    is_inception = augment == "inception"
    assert preprocessing.flip == (is_inception and flips)
    assert preprocessing.areas == ((0.08, 1.0) if is_inception else None)
    assert preprocessing.center_crop_fraction == 0.875
