"""Translation in an evaluation step, and collection of the translations on the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

OUTPUTS, IDS, SENTENCES = "outputs", "ids", "sentences"
_NOT_SELECTED = -1


def decode(
    model: tf_keras.Model,
    inputs: tf.Tensor,
    ids: tf.Tensor,
    selected: tf.Tensor,
    *,
    static: bool,
) -> dict[str, tf.Tensor]:
    """Translates the rows of a batch that `asked`, bool [batch], selects, by beam search.

    `inputs` are the sources, int32 [batch, length], and `ids` their numbers, int64 [batch]. With
    `static`, all rows are translated, which keeps shapes static. Returns `outputs`, int32
    [rows, tokens], and `ids`, int64 [rows], -1 for rows that were not selected.
    """
    if static:
        outputs = model({"inputs": inputs}, training=False)[OUTPUTS]
        return {OUTPUTS: outputs, IDS: tf.where(selected, ids, _NOT_SELECTED)}
    chosen = tf.boolean_mask(inputs, selected)
    outputs = tf.cond(
        tf.reduce_any(selected),
        lambda: model({"inputs": chosen}, training=False)[OUTPUTS],
        lambda: tf.zeros([0, 0], tf.int32),
    )
    return {OUTPUTS: outputs, IDS: tf.boolean_mask(ids, selected)}


class Translations:
    """The translations of the replicas of this worker."""

    def __init__(self) -> None:
        self.sentences = 0  # The number of evaluated sentences, including those not translated.
        self._rows: dict[int, np.ndarray] = {}

    def add(self, logs: Mapping[str, Sequence[tf.Tensor]]) -> None:
        """Adds a step.

        `logs` has, for each replica, the number of sentences and the result of `decode`.
        """
        self.sentences += sum(int(count) for count in logs[SENTENCES])
        for ids, outputs in zip(logs.get(IDS, ()), logs.get(OUTPUTS, ()), strict=True):
            pairs = zip(ids.numpy().tolist(), outputs.numpy(), strict=True)
            self._rows.update({number: row for number, row in pairs if number != _NOT_SELECTED})

    def ids(self) -> list[int]:
        """Returns the numbers of the sentences in ascending order."""
        return sorted(self._rows)

    def rows(self) -> Iterator[np.ndarray]:
        """Yields the token ids of the translations in the order of `ids`."""
        return (self._rows[number] for number in self.ids())
