"""Sentences of random subwords, for benchmarks and for trying a model without its text."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.text.dataset import PairDataset
from orbit_runner.data.text.source import EOS, UNKNOWN, PairSource, Ragged
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary

_FIRST = UNKNOWN + 1
_SHORTEST = 2


class SyntheticPairs(PairDataset):
    """Sentences of random subwords."""

    def read(self, vocab_size: int, vocabulary: Vocabulary | None) -> PairSource:
        """Returns the pairs, drawn once per process."""
        return _load(
            num_examples=self.section.synthetic.num_examples,
            kind=self.section.synthetic.kind,
            vocab_size=vocab_size,
            max_length=self.section.max_seq_length,
            seed=self.section.seed or 0,
        )

    def check(self) -> None:
        """Accepts all settings: the config has checked them."""


def load(
    *, num_examples: int, vocab_size: int, max_length: int, kind: str = "random", seed: int = 0
) -> PairSource:
    """Returns synthetic pairs, without references.

    Ids are from 3 to `vocab_size` - 1, followed by `EOS`. `max_length` is the maximum number of
    tokens of a sentence, including `EOS`. If `kind` is `random`, ids are random, the lengths of
    sources are uniform from 2 to `max_length`, and a target is about as long as its source. If it
    is `constant`, all sentences are equal and have `max_length` tokens.
    """
    if kind == "constant":
        lengths = np.full(num_examples, max_length)
        side = _append_end(np.full(lengths.sum(), _FIRST, np.int32), lengths)
        return PairSource("synthetic", side, side, vocab_size)
    generator = np.random.Generator(np.random.Philox(seed % 2**64))
    sources = generator.integers(_SHORTEST, max_length + 1, num_examples)
    # Most translations differ in length by less than a fifth.
    factors = generator.uniform(0.8, 1.2, num_examples)
    targets = np.clip(np.rint(sources * factors).astype(np.int64), _SHORTEST, max_length)
    inputs, outputs = (
        _append_end(generator.integers(_FIRST, vocab_size, lengths.sum(), np.int32), lengths)
        for lengths in (sources, targets)
    )
    return PairSource("synthetic", inputs, outputs, vocab_size)


_load = cache_source(maxsize=8)(load)


def _append_end(values: np.ndarray, lengths: np.ndarray) -> Ragged:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values[offsets[1:] - 1] = EOS
    return Ragged(values, offsets)
