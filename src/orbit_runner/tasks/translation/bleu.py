"""BLEU as sacrebleu counts it, from parts that may lie on several workers."""

from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU, MAX_NGRAM_ORDER


class CorpusBleu:
    """Counts n-grams of sentences, which sum up over any parts of a corpus.

    Attributes:
        signature: What has to be told beside a score, in sacrebleu's notation.
    """

    def __init__(self, *, tokenize: str = "13a", lowercase: bool = False) -> None:
        """Sets up the metric (Papineni et al. 2002; Post 2018).

        Args:
            tokenize: How sacrebleu cuts words; both sides are raw text.
            lowercase: Whether case does not count.
        """
        self._metric = BLEU(tokenize=tokenize, lowercase=lowercase)
        self.counts(["a"], ["a"])  # Sacrebleu signs only what it has seen references for.
        self.signature = str(self._metric.get_signature())

    def counts(self, translations: Sequence[str], references: Sequence[str]) -> list[int]:
        """Counts.

        Args:
            translations: n sentences.
            references: A translation of each by a person.

        Returns:
            Lengths of both in words, then for each order of n-grams those that match, then those
            that there are; sums over the sentences.
        """
        if not translations:
            return [0] * (2 + 2 * MAX_NGRAM_ORDER)
        found = self._metric.corpus_score(translations, [list(references)])
        return [found.sys_len, found.ref_len, *found.counts, *found.totals]

    def score(self, counts: Sequence[int]) -> float:
        """Computes the score.

        Args:
            counts: As `counts` gives them, or sums of such.

        Returns:
            BLEU, 0 to 100; 0 where there is no sentence.
        """
        translated, reference, *ngrams = counts
        if not translated:
            return 0.0
        matches, totals = ngrams[:MAX_NGRAM_ORDER], ngrams[MAX_NGRAM_ORDER:]
        smoothing = self._metric.smooth_method
        found = BLEU.compute_bleu(matches, totals, translated, reference, smooth_method=smoothing)
        return float(found.score)
