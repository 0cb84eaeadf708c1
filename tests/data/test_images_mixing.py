"""Mixup and CutMix: which images and labels are mixed, and in which shares."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from orbit_runner.data.images.mixing import Mixer, Mixing

_CLASSES = 4
_SIZE = 4000


def _mix(size=_SIZE, first=0, good=None, epoch=0, seed=1, **settings):
    """Mixes images that are white at odd numbers and black at even ones."""
    ids = np.arange(first, first + size)
    images = np.broadcast_to(
        (255 * (ids % 2)).astype(np.uint8)[:, None, None, None], (size, 8, 8, 1)
    )
    labels = (ids % 2).astype(np.int32)
    mixer = Mixer(Mixing(num_classes=_CLASSES, **settings), seed)
    good = np.ones(size, bool) if good is None else good
    epochs = tf.fill([size], tf.constant(epoch, tf.int64))
    mixed = mixer(
        tf.constant(images), tf.constant(labels), tf.constant(good), tf.constant(ids), epochs
    )
    return mixed[0].numpy(), mixed[1].numpy()


def test_label_shares_match_pixel_shares():
    images, labels = _mix(label_smoothing=0.0)
    white = images.mean(axis=(1, 2, 3)) / 255
    np.testing.assert_allclose(labels[:, 1], white, atol=0.003)
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-6)
    assert (labels[:, 2:] == 0).all()
    # About half use CutMix, which leaves pixels black or white.
    cut = (np.isin(images, (0, 255))).all(axis=(1, 2, 3))
    assert 0.4 < cut.mean() < 0.65


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 3.0])
def test_mixup_shares_follow_a_beta_distribution(alpha):
    _, labels = _mix(mixup_alpha=alpha, cutmix_alpha=0.0, label_smoothing=0.0)
    own = np.where(np.arange(_SIZE) % 2, labels[:, 1], labels[:, 0])
    assert stats.kstest(own, stats.beta(alpha, alpha).cdf).pvalue > 1e-3
    images, _ = _mix(mixup_alpha=alpha, cutmix_alpha=0.0)
    assert (images.min(axis=(1, 2, 3)) == images.max(axis=(1, 2, 3))).all()


def test_cutmix_pastes_one_rectangle_of_varying_size():
    images, labels = _mix(mixup_alpha=0.0, cutmix_alpha=1.0, label_smoothing=0.0)
    own = 255 * (np.arange(_SIZE) % 2)[:, None, None]
    other = images[..., 0] != own
    rows, columns = other.any(axis=2), other.any(axis=1)
    np.testing.assert_array_equal(other, rows[:, :, None] & columns[:, None, :])
    for line in (rows, columns):
        starts = (np.diff(line.astype(int), axis=1, prepend=0) == 1).sum(axis=1)
        assert starts.max() == 1
    own_share = np.where(np.arange(_SIZE) % 2, labels[:, 1], labels[:, 0])
    # Rectangles are clipped at the edges, so less is replaced than Beta(1, 1) implies.
    assert own_share.min() < 0.5
    assert own_share.max() == 1
    assert 0.6 < own_share.mean() < 0.95


def test_mixing_probability_and_label_smoothing_are_applied():
    images, labels = _mix(prob=0.25, label_smoothing=0.2)
    kept = (images == (255 * (np.arange(_SIZE) % 2))[:, None, None, None]).all(axis=(1, 2, 3))
    assert kept.mean() > 0.7
    highest = labels[kept].max(axis=1)
    np.testing.assert_allclose(np.median(highest), 0.85, atol=1e-6)
    np.testing.assert_allclose(labels.min(), 0.05, atol=1e-6)
    none, _ = _mix(prob=0.0)
    assert set(np.unique(none[::2])) == {0}
    assert set(np.unique(none[1::2])) == {255}


def test_mixing_depends_only_on_seed_example_and_epoch():
    images_of_all, labels = _mix(16)
    for first in (0, 4, 10):
        images, part = _mix(6, first)
        np.testing.assert_array_equal(images, images_of_all[first : first + 6])
        np.testing.assert_array_equal(part, labels[first : first + 6])
    assert (_mix(16, epoch=1)[1] != labels).any(axis=1).sum() > 12
    assert (_mix(16, seed=2)[1] != labels).any(axis=1).sum() > 12


def test_undecodable_image_is_not_mixed_into_others():
    good = np.ones(8, bool)
    good[2] = False
    images, labels = _mix(8, good=good, label_smoothing=0.0)
    assert (images[3] == 255).all()
    np.testing.assert_array_equal(labels[3], [0, 1, 0, 0])
    np.testing.assert_array_equal(np.delete(images, 3, 0)[3:], np.delete(_mix(8)[0], 3, 0)[3:])
