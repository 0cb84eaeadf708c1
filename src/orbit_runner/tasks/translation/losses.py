"""Cross entropy of target tokens, excluding padding."""

from __future__ import annotations

import tensorflow as tf

PAD = 0


def token_mask(targets: tf.Tensor) -> tf.Tensor:
    """Returns 1 for tokens and 0 for padding, float32 [batch, length].

    `targets` are int32 [batch, length].
    """
    return tf.cast(tf.not_equal(targets, PAD), tf.float32)


def negative_log_likelihood(targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the cross entropy of each token in nats, 0 for padding, float32 [batch, length].

    `targets` are int32 [batch, length], `logits` float32 [batch, length, vocabulary].
    """
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    return entropy * token_mask(targets)


def smoothed_cross_entropy(
    targets: tf.Tensor, logits: tf.Tensor, label_smoothing: float
) -> tf.Tensor:
    """Returns the cross entropy of each token with label smoothing, float32 [batch, length].

    It is in nats, and 0 for padding. `targets` are int32 [batch, length], `logits` float32
    [batch, length, vocabulary].

    A share s, `label_smoothing`, of each target is spread over the other v − 1 tokens (Szegedy et
    al. 2015, section 7). With the log likelihood l and the logits z, the cross entropy is
    −l + s·v/(v − 1) · (z[target] − mean of z), which needs no tensor of smoothed targets.
    """
    entropy = negative_log_likelihood(targets, logits)
    if not label_smoothing:
        return entropy
    vocabulary = tf.cast(tf.shape(logits)[-1], tf.float32)
    spread = label_smoothing * vocabulary / (vocabulary - 1.0)
    chosen = tf.gather(logits, targets, batch_dims=2)
    gap = chosen - tf.reduce_mean(logits, axis=-1)
    return entropy + spread * gap * token_mask(targets)
