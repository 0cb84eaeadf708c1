"""Translations inside an evaluation step, and what the host keeps of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

OUTPUTS, IDS, SENTENCES = "outputs", "ids", "sentences"
_LEFT_OUT = -1


def decode(
    model: tf_keras.Model,
    inputs: tf.Tensor,
    ids: tf.Tensor,
    asked: tf.Tensor,
    *,
    static: bool,
) -> dict[str, tf.Tensor]:
    """Translates rows of a batch by beam search.

    Args:
        model: The model.
        inputs: Sources, int32 [batch, length].
        ids: Their numbers, int64 [batch].
        asked: Which rows to translate, bool [batch].
        static: Whether all of them are translated, to keep shapes static.

    Returns:
        `outputs`, int32 [rows, tokens], and `ids`, int64 [rows], -1 where a row was not asked for.
    """
    if static:
        outputs = model({"inputs": inputs}, training=False)[OUTPUTS]
        return {OUTPUTS: outputs, IDS: tf.where(asked, ids, _LEFT_OUT)}
    chosen = tf.boolean_mask(inputs, asked)
    outputs = tf.cond(
        tf.reduce_any(asked),
        lambda: model({"inputs": chosen}, training=False)[OUTPUTS],
        lambda: tf.zeros([0, 0], tf.int32),
    )
    return {OUTPUTS: outputs, IDS: tf.boolean_mask(ids, asked)}


class Translations:
    """What the replicas of this worker translated.

    Attributes:
        sentences: Sentences that were evaluated.
    """

    def __init__(self) -> None:
        self.sentences = 0
        self._rows: dict[int, np.ndarray] = {}

    def add(self, logs: Any) -> None:
        """Adds a step.

        Args:
            logs: For each replica the number of sentences, and what `decode` gave.
        """
        self.sentences += sum(int(count) for count in logs[SENTENCES])
        for ids, outputs in zip(logs.get(IDS, ()), logs.get(OUTPUTS, ()), strict=True):
            found = zip(ids.numpy().tolist(), outputs.numpy(), strict=True)
            self._rows.update({number: row for number, row in found if number != _LEFT_OUT})

    def ids(self) -> list[int]:
        """Returns the numbers of the sentences, rising."""
        return sorted(self._rows)

    def rows(self) -> Iterator[np.ndarray]:
        """Yields their translations, token ids, in the same order."""
        return (self._rows[number] for number in self.ids())
