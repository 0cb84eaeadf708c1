"""Cross entropy and metrics of target tokens, excluding padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf
from sacrebleu.metrics.bleu import BLEU, MAX_NGRAM_ORDER

from orbit_runner.tasks.metrics import Ratio

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
    target_logits = tf.gather(logits, targets, batch_dims=2)
    gap = target_logits - tf.reduce_mean(logits, axis=-1)
    return entropy + spread * gap * token_mask(targets)


class CorpusBleu:
    """Counts n-grams of sentences (Papineni et al. 2002; Post 2018).

    The counts of parts of a corpus can be summed. Translations and references are raw text, and
    `tokenize` is the name of the sacrebleu tokenizer that splits it.
    """

    def __init__(self, *, tokenize: str = "13a", lowercase: bool = False) -> None:
        self._metric = BLEU(tokenize=tokenize, lowercase=lowercase)
        self.counts(["a"], ["a"])  # sacrebleu has no signature before it has seen references.
        # The settings to report with a score, in sacrebleu's notation.
        self.signature = str(self._metric.get_signature())

    def counts(self, translations: Sequence[str], references: Sequence[str]) -> list[int]:
        """Returns counts of translations and of their references, one each, summed over sentences.

        They are the lengths of both in words, then for each n-gram order the number of matches,
        then for each order the number of n-grams in the translations.
        """
        if not translations:
            return [0] * (2 + 2 * MAX_NGRAM_ORDER)
        bleu = self._metric.corpus_score(translations, [list(references)])
        return [bleu.sys_len, bleu.ref_len, *bleu.counts, *bleu.totals]

    def score(self, counts: Sequence[int]) -> float:
        """Returns BLEU, 0 to 100, from the result of `counts` or a sum of results.

        Returns 0 if there are no sentences.
        """
        translated, reference, *ngrams = counts
        if not translated:
            return 0.0
        matches = ngrams[:MAX_NGRAM_ORDER]
        totals = ngrams[MAX_NGRAM_ORDER:]
        smoothing = self._metric.smooth_method
        bleu = BLEU.compute_bleu(matches, totals, translated, reference, smooth_method=smoothing)
        return float(bleu.score)


class _TokenMean(Ratio):
    """The mean of a value over target tokens."""

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self,
        labels: Mapping[str, tf.Tensor],
        logits: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
    ) -> None:
        """Adds a batch.

        `labels["targets"]` is int32 [batch, length], `logits` float32 [batch, length, vocabulary].
        `sample_weight` is float32 [batch]; all 1 if None.
        """
        targets = labels["targets"]
        weights = token_mask(targets)
        if sample_weight is not None:
            weights *= sample_weight[:, tf.newaxis]
        self.add(tf.reduce_sum(self._values(targets, logits) * weights), tf.reduce_sum(weights))

    def _values(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError


class TokenAccuracy(_TokenMean):
    """The share of target tokens that have the largest logit."""

    def _values(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return tf.cast(tf.equal(best, targets), tf.float32)


class Perplexity(_TokenMean):
    """The exponential of the mean cross entropy of target tokens, without label smoothing."""

    def _values(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return negative_log_likelihood(targets, logits)

    def result(self) -> tf.Tensor:
        """Returns the perplexity, or 1 if nothing was added."""
        return tf.exp(super().result())
