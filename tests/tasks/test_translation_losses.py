"""Loss and metrics over tokens, compared with numpy and Model Garden."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from official.nlp.tasks import translation as garden

from orbit_runner.tasks.translation.metrics import (
    Perplexity,
    TokenAccuracy,
    negative_log_likelihood,
    smoothed_cross_entropy,
)
from orbit_runner.tasks.translation.task import TranslationTask
from tests.support.translations import translation_config

VOCAB = 11
RNG = np.random.default_rng(3)
LOGITS = (RNG.normal(size=(4, 5, VOCAB)) * 2).astype(np.float32)
TARGETS = RNG.integers(1, VOCAB, size=(4, 5)).astype(np.int32)
TARGETS[:, ::2] = LOGITS[:, ::2, 1:].argmax(-1) + 1
TARGETS[1, 3:] = TARGETS[2, 1:] = TARGETS[3] = 0
MASK = TARGETS > 0


def _entropy(smoothing: float) -> np.ndarray:
    logits = LOGITS.astype(np.float64)
    log_share = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    spread = np.full((4, 5, VOCAB), smoothing / (VOCAB - 1))
    np.put_along_axis(spread, TARGETS[..., np.newaxis], 1 - smoothing, axis=-1)
    return -(spread * log_share).sum(axis=-1) * MASK


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_smoothed_cross_entropy_matches_numpy(smoothing: float) -> None:
    found = smoothed_cross_entropy(tf.constant(TARGETS), tf.constant(LOGITS), smoothing)
    np.testing.assert_allclose(found, _entropy(smoothing), rtol=1e-5, atol=1e-6)
    assert (found.numpy()[~MASK] == 0).all()


def test_gradient_of_the_loss_matches_model_garden() -> None:
    # Model Garden subtracts the smallest possible loss, so that a perfect model has 0.
    with tf.GradientTape(persistent=True) as tape:
        logits = tf.constant(LOGITS)
        tape.watch(logits)
        ours = tf.reduce_sum(smoothed_cross_entropy(tf.constant(TARGETS), logits, 0.1))
        theirs, weights = garden._padded_cross_entropy_loss(logits, TARGETS, 0.1, VOCAB)
        theirs = tf.reduce_sum(theirs)
    np.testing.assert_allclose(
        tape.gradient(ours, logits), tape.gradient(theirs, logits), atol=1e-6
    )
    lowest = -0.9 * np.log(0.9) - 0.1 * np.log(0.1 / (VOCAB - 1))
    np.testing.assert_allclose(ours - theirs, lowest * weights.numpy().sum(), rtol=1e-5)


def _task() -> TranslationTask:
    changes = {
        f"task__{section}__source": "synthetic" for section in ("train_data", "validation_data")
    }
    return TranslationTask(translation_config("nowhere", **changes).task)  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [None, np.array([1, 0, 1, 1], np.float32)])
def test_metrics_ignore_padding_and_rows_with_zero_weight(weights: Any) -> None:
    counted = MASK if weights is None else MASK & (weights > 0)[:, np.newaxis]
    labels = {"targets": tf.constant(TARGETS)}
    accuracy, perplexity = TokenAccuracy("a"), Perplexity("p")
    for metric in (accuracy, perplexity):
        # Twice, as two batches would.
        for _ in range(2):
            metric.update_state(labels, tf.constant(LOGITS), sample_weight=weights)
    hits = (LOGITS.argmax(-1) == TARGETS)[counted]
    assert 0 < hits.mean() < 1
    np.testing.assert_allclose(accuracy.result(), hits.mean(), rtol=1e-6)
    entropy = negative_log_likelihood(tf.constant(TARGETS), tf.constant(LOGITS)).numpy()
    np.testing.assert_allclose(perplexity.result(), np.exp(entropy[counted].mean()), rtol=1e-5)
    assert Perplexity("p").result().numpy() == 1


def test_validation_step_weights_the_loss_by_tokens() -> None:
    task = _task()

    def model(features: object, training: bool) -> tf.Tensor:
        return tf.constant(LOGITS)

    weights = np.array([1, 1, 0, 1], np.float32)
    batch = (
        {"inputs": tf.constant(TARGETS), "targets": tf.constant(TARGETS)},
        {"targets": tf.constant(TARGETS), "id": tf.range(4, dtype=tf.int64)},
        tf.constant(weights),
    )
    logs = task.validation_step(batch, model)
    counted = MASK[weights > 0]
    assert float(logs["examples"]) == counted.sum()
    expected = _entropy(0.1)[weights > 0].sum() / counted.sum()
    np.testing.assert_allclose(float(logs["loss"]), expected, rtol=1e-5)
    assert int(logs["sentences"]) == 3
