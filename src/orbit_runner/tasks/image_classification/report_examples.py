"""What the report shows of a classification: the confusion matrix and the worst mistakes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.tasks.report_examples import ReportExamples

_MOST_EXAMPLES = 10_000
_MISTAKES = 24


def classification_examples(
    model: tf_keras.Model,
    batches: Iterable[Any],
    *,
    names: Sequence[str] = (),
    total: int | None = None,
) -> ReportExamples:
    """Returns the confusion matrix and the mistakes in which the label is the least probable.

    Args:
        model: Maps images to logits [batch, classes].
        batches: `(images, labels)` or `(images, labels, weights)`. Labels are class numbers
            [batch], or one-hot or shares of the classes [batch, classes]. Rows of weight 0 are
            left out.
        names: The names of the classes.
        total: The number of examples of the dataset; None if unknown.
    """
    confusion: Counter[tuple[int, int]] = Counter()
    worst: list[_Mistake] = []
    seen = 0
    for images, labels, shares, numbers in _predictions(model, batches):
        room = _MOST_EXAMPLES - seen
        predicted = shares.argmax(axis=-1)[:room]
        labels = labels[:room]
        confusion.update(zip(labels.tolist(), predicted.tolist(), strict=True))
        rows = np.flatnonzero(predicted != labels)
        rows = rows[np.argsort(shares[rows, labels[rows]], kind="stable")][:_MISTAKES]
        found = [_Mistake.of(images, labels, shares, numbers, row) for row in rows.tolist()]
        worst = sorted([*worst, *found], key=lambda one: one.of_label)[:_MISTAKES]
        seen += len(labels)
        if seen == _MOST_EXAMPLES:
            break
    return ReportExamples(
        note=_note(seen, total, sum(n for (a, b), n in confusion.items() if a == b)),
        confusion=confusion,
        classes=names,
        images=np.stack([one.image for one in worst]) if worst else None,
        captions=[one.caption(names) for one in worst],
    )


@dataclasses.dataclass(frozen=True)
class _Mistake:
    """An example whose label is not the most probable class."""

    image: np.ndarray
    label: int
    predicted: int
    probability: float  # of the prediction
    of_label: float  # probability of the label
    number: int

    @classmethod
    def of(
        cls,
        images: np.ndarray,
        labels: np.ndarray,
        shares: np.ndarray,
        numbers: np.ndarray,
        row: int,
    ) -> _Mistake:
        label, predicted = int(labels[row]), int(shares[row].argmax())
        probabilities = float(shares[row, predicted]), float(shares[row, label])
        return cls(images[row], label, predicted, *probabilities, int(numbers[row]))

    def caption(self, names: Sequence[str]) -> str:
        label, predicted = (
            names[one] if one < len(names) else str(one) for one in (self.label, self.predicted)
        )
        return f"{label} → {predicted} {self.probability:.2f}\nexample {self.number:,}"


def _predictions(
    model: tf_keras.Model, batches: Iterable[Any]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yields images, labels, probabilities [n, classes] and numbers of the examples of a batch."""
    first = 0
    for batch in batches:
        images, labels, weights = tf_keras.utils.unpack_x_y_sample_weight(batch)
        logits = tf.cast(model(images, training=False), tf.float64)
        targets = labels.numpy()
        if targets.ndim == 2:
            targets = targets.argmax(axis=-1)
        rows = np.arange(len(targets)) if weights is None else np.flatnonzero(weights.numpy())
        shares = tf.nn.softmax(logits).numpy()[rows]
        yield images.numpy()[rows], targets[rows], shares, first + rows
        first += len(targets)


def _note(seen: int, total: int | None, correct: int) -> str:
    counted = f"the first {seen:,} examples"
    if total is not None:
        counted = f"all {total:,} examples" if seen >= total else f"{counted} of {total:,}"
    predictions = f"correct prediction{'s' * (correct != 1)}"
    return f"{correct:,} {predictions} for {counted} of the validation data"
