"""Computes BLEU as sacrebleu does, from counts that may come from several workers."""

from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU, MAX_NGRAM_ORDER


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
