"""Model Garden's Transformer as it is built here: sizes, variables, padding, decoding."""

import re

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.catalog import SIZES
from orbit_runner.models.configs import StackConfig, TransformerConfig
from orbit_runner.models.transformer import transformer

VOCAB = 40
_SMALL = StackConfig(num_layers=2, num_attention_heads=2, intermediate_size=16)


def small(**changes):
    settings = {"embedding_width": 8, "encoder": _SMALL, "decoder": _SMALL, "preset": "tiny"}
    return transformer(TransformerConfig(**{**settings, **changes}), vocab_size=VOCAB)


def _ids(*rows):
    width = max(map(len, rows))
    return tf.constant([row + [0] * (width - len(row)) for row in rows], tf.int32)


def _layout(model):
    names = [re.sub(r"_\d+(?=/)", "", variable.name) for variable in model.variables]
    return [(name, list(v.shape)) for name, v in zip(names, model.variables, strict=True)]


def _count_parameters(vocabulary, width, inner, encoders, decoders):
    """Counts the weights by the formulas of the paper, without biases in attention."""
    attention, norm = 4 * width**2, 2 * width
    feed_forward = 2 * width * inner + inner + width
    # Each stack has a normalization at its end.
    encoder = encoders * (attention + feed_forward + 2 * norm) + norm
    decoder = decoders * (2 * attention + feed_forward + 3 * norm) + norm
    return vocabulary * width + encoder + decoder


# 37,000 is the vocabulary of Vaswani et al. 2017, whose table 3 has 65 and 213 million; 33,708 that
# of Model Garden.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "vocab_size", "millions"),
    [
        ("base", 33_708, 61.4),
        ("big", 37_000, 214.2),
    ],
)
def test_presets_have_the_published_sizes(preset, vocab_size, millions):
    size = SIZES[preset]
    computed = _count_parameters(
        vocab_size, size.embedding_width, size.intermediate_size, size.num_layers, size.num_layers
    )
    # Only the embedding grows with the vocabulary.
    model = transformer(TransformerConfig(preset=preset), vocab_size=100)
    counted = model.count_params() + (vocab_size - 100) * size.embedding_width
    assert counted == computed
    assert round(computed / 1e6, 1) == millions


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("encoder_first", [False, True])
def test_logits_and_variables_are_float32_under_every_policy(policy, encoder_first):
    ids = _ids([5, 6, 1], [7, 1])
    model = small(
        encoder=_SMALL.replace(norm_first=encoder_first, use_bias=encoder_first),
        decoder=_SMALL.replace(norm_first=not encoder_first, use_bias=not encoder_first),
        padded_decode=encoder_first,
        decode_max_length=4,
    )
    names = [variable.name for variable in model.variables]
    with tf.GradientTape() as tape:
        logits = model({"inputs": ids, "targets": ids[:, :2]}, training=True)
        loss = tf.reduce_sum(logits**2)
    assert logits.shape == [2, 2, VOCAB]
    assert logits.dtype == tf.float32
    assert np.isfinite(logits.numpy()).all()
    assert {variable.dtype for variable in model.variables} == {tf.float32}
    assert all(
        np.isfinite(tf.convert_to_tensor(gradient).numpy()).all()
        for gradient in tape.gradient(loss, model.trainable_variables)
    )
    assert model({"inputs": ids})["outputs"].dtype == tf.int32
    # All variables exist before the first call.
    assert [variable.name for variable in model.variables] == names
    assert len(names) == len(set(names)) > 20


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("reduced", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_reduced_precision_computes_the_logits_of_float32(norm_first, reduced):
    stack = _SMALL.replace(norm_first=norm_first)
    ids = {"inputs": _ids([5, 6, 1], [7, 1]), "targets": _ids([8, 9, 1], [4, 1])}
    exact = small(encoder=stack, decoder=stack)
    tf_keras.mixed_precision.set_global_policy(reduced)
    rounded = small(encoder=stack, decoder=stack)
    # A checkpoint of one can be restored in the other.
    assert _layout(rounded) == _layout(exact)
    rounded.set_weights(exact.get_weights())
    np.testing.assert_allclose(rounded(ids), exact(ids), atol=0.15)


@pytest.mark.slow
def test_padding_does_not_affect_the_logits():
    model, source, target = small(), [5, 6, 7, 1], [8, 9, 1]
    alone = model({"inputs": _ids(source), "targets": _ids(target)})
    beside = model({"inputs": _ids(source, [4] * 7 + [1]), "targets": _ids(target, [4] * 5 + [1])})
    np.testing.assert_allclose(beside[0, :3], alone[0], rtol=1e-5, atol=1e-5)
