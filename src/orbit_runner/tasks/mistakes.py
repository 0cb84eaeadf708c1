"""What the report shows of a classification: the confusion matrix and the worst mistakes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.tasks.report_examples import ReportExamples

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

_MAX_EXAMPLES = 10_000


_BINS = 10
Calibration = Sequence[tuple[int, float, float]]


@dataclasses.dataclass(frozen=True)
class Mistake:
    """An example whose label is not the most probable class."""

    features: np.ndarray  # One row of the features of the batch.
    label: int
    predicted: int
    probability: float  # of the prediction
    label_probability: float  # probability of the label
    number: int  # of the example

    def classes(self, names: Sequence[str]) -> tuple[str, str]:
        """Returns the names of the label and of the prediction, their numbers if they have none."""
        label, predicted = (
            names[number] if number < len(names) else str(number)
            for number in (self.label, self.predicted)
        )
        return label, predicted


@dataclasses.dataclass(frozen=True)
class Mistakes:
    """The predictions for some examples.

    Attributes:
        confusion: The count of each pair (label, prediction) that occurs.
        worst: The mistakes in which the label is the least probable, from the worst.
        num_examples: The number of examples.
        calibration: See `ReportExamples`.
    """

    confusion: Counter[tuple[int, int]]
    worst: Sequence[Mistake]
    num_examples: int
    calibration: Calibration = ()

    def note(self, total: int | None) -> str:
        """Returns how many predictions are correct, out of `total` examples; None if unknown."""
        correct = sum(
            count for (label, predicted), count in self.confusion.items() if label == predicted
        )
        counted = f"the first {self.num_examples:,} examples"
        if total is not None:
            all_seen = self.num_examples >= total
            counted = f"all {total:,} examples" if all_seen else f"{counted} of {total:,}"
        predictions = f"correct prediction{'s' * (correct != 1)}"
        return f"{correct:,} {predictions} for {counted} of the validation data"


def find_mistakes(
    model: tf_keras.Model, batches: Iterable[Tensors], *, max_mistakes: int
) -> Mistakes:
    """Returns the predictions for the first 10,000 examples.

    Args:
        model: Maps features to logits [batch, classes].
        batches: `(features, labels)` or `(features, labels, weights)`. Features are one tensor.
            Labels are class numbers [batch], or one-hot or shares of the classes [batch, classes].
            Rows of weight 0 are left out.
        max_mistakes: The maximum number of mistakes.
    """
    confusion: Counter[tuple[int, int]] = Counter()
    worst: list[Mistake] = []
    num_examples = 0
    probabilities: list[np.ndarray] = []
    correct: list[np.ndarray] = []
    for features, labels, shares, numbers in _predictions(model, batches):
        remaining = _MAX_EXAMPLES - num_examples
        predicted = shares.argmax(axis=-1)[:remaining]
        labels = labels[:remaining]
        confusion.update(zip(labels.tolist(), predicted.tolist(), strict=True))
        probabilities.append(shares.max(axis=-1)[:remaining])
        correct.append(predicted == labels)
        rows = np.flatnonzero(predicted != labels)
        rows = rows[np.argsort(shares[rows, labels[rows]], kind="stable")][:max_mistakes]
        mistakes = [_mistake(features, labels, shares, numbers, row) for row in rows.tolist()]
        worst = sorted([*worst, *mistakes], key=lambda mistake: mistake.label_probability)[
            :max_mistakes
        ]
        num_examples += len(labels)
        if num_examples == _MAX_EXAMPLES:
            break
    calibration = calibration_of(probabilities, correct)
    return Mistakes(confusion, worst, num_examples, calibration)


def calibration_of(
    probabilities: Sequence[np.ndarray], correct: Sequence[np.ndarray]
) -> Calibration:
    """Returns the bins of `ReportExamples.calibration`.

    Args:
        probabilities: The probability of each prediction, in parts.
        correct: Whether each prediction is the label, in parts.
    """
    if not probabilities:
        return ()
    shares = np.concatenate(probabilities)
    finite = np.isfinite(shares)
    shares = shares[finite]
    hits = np.concatenate(correct)[finite]
    places = np.minimum((shares * _BINS).astype(np.int64), _BINS - 1)
    bins = []
    for place in np.unique(places).tolist():
        inside = places == place
        bins.append((int(inside.sum()), float(shares[inside].mean()), float(hits[inside].mean())))
    return bins


def _mistake(
    features: np.ndarray, labels: np.ndarray, shares: np.ndarray, numbers: np.ndarray, row: int
) -> Mistake:
    label = int(labels[row])
    predicted = int(shares[row].argmax())
    probabilities = float(shares[row, predicted]), float(shares[row, label])
    return Mistake(features[row], label, predicted, *probabilities, int(numbers[row]))


def _predictions(
    model: tf_keras.Model, batches: Iterable[Tensors]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yields features, labels, probabilities [n, classes] and example numbers of each batch."""
    first = 0
    for batch in batches:
        features, labels, weights = tf_keras.utils.unpack_x_y_sample_weight(batch)
        logits = tf.cast(model(features, training=False), tf.float64)
        targets = labels.numpy()
        if targets.ndim == 2:
            targets = targets.argmax(axis=-1)
        rows = np.arange(len(targets)) if weights is None else np.flatnonzero(weights.numpy())
        shares = tf.nn.softmax(logits).numpy()[rows]
        yield features.numpy()[rows], targets[rows], shares, first + rows
        first += len(targets)


_MISTAKES = 24


def classification_examples(
    model: tf_keras.Model,
    batches: Iterable[Tensors],
    *,
    names: Sequence[str] = (),
    total: int | None = None,
    place: Callable[[int], Mapping[str, object]] | None = None,
) -> ReportExamples:
    """Returns the confusion matrix and the mistakes in which the label is the least probable.

    Args:
        model: Maps images to logits [batch, classes].
        batches: As `find_mistakes` takes them, with images as features.
        names: The names of the classes.
        total: The number of examples of the dataset; None if unknown.
        place: Returns where an example is stored, by its number.
    """
    mistakes = find_mistakes(model, batches, max_mistakes=_MISTAKES)
    return ReportExamples(
        note=mistakes.note(total),
        confusion=mistakes.confusion,
        classes=names,
        calibration=mistakes.calibration,
        images=np.stack([mistake.features for mistake in mistakes.worst])
        if mistakes.worst
        else None,
        captions=[_caption(mistake, names, place) for mistake in mistakes.worst],
    )


def _caption(
    mistake: Mistake,
    names: Sequence[str],
    place: Callable[[int], Mapping[str, object]] | None,
) -> str:
    label, predicted = mistake.classes(names)
    known = {} if place is None else place(mistake.number)
    where = ", ".join(starmap(_place_text, known.items())) or f"example {mistake.number:,}"
    return f"{label} → {predicted} {mistake.probability:.2f}\n{where}"


def _place_text(name: str, value: object) -> str:
    """Returns a part of a place. Of the path of an image, its directory is often its class."""
    if name == "file":
        return "/".join(str(value).split("/")[-2:])
    return str(value) if isinstance(value, str) else f"{name} {value}"
