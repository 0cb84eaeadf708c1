"""What the report of a run shows of an evaluation, as a task returns it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

_MAX_EXAMPLES = 10_000
_MISTAKES = 24
_BINS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportExamples:
    """What the report of a run shows of an evaluation. Each part can be left empty.

    Attributes:
        note: What the examples are, such as `the first 500 of 10,000 examples`.
        confusion: For classes by number, the count of each pair (label, prediction) that occurs.
        classes: The names of the classes; empty if they have none.
        calibration: How probable the predictions are and how often they are right, for each tenth
            of the probability in which there are any: the number of predictions, their mean
            probability, and the share that is the label.
        facts: Measures by name, as texts, such as those of the errors of a regression.
        images: Pictures, [n, height, width, channels] with 1, 3 or 4 channels; None if there are
            none. The report shows at most 32, and makes large pictures smaller.
        captions: The text below each picture. It may have several lines.
        head: The headings of a table.
        rows: The rows of the table. The report shows at most 50.
    """

    note: str = ""
    confusion: Mapping[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    classes: Sequence[str] = ()
    calibration: Sequence[tuple[int, float, float]] = ()
    facts: Sequence[tuple[str, str]] = ()
    images: np.ndarray | None = None
    captions: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


class _Mistake(NamedTuple):
    """An example whose label is not the most probable class."""

    image: np.ndarray
    label: int
    predicted: int
    probability: float  # of the prediction
    label_probability: float
    number: int  # of the example

    def caption(
        self,
        names: Sequence[str],
        place: Callable[[int], Mapping[str, object]] | None,
    ) -> str:
        label, predicted = (
            names[number] if number < len(names) else str(number)
            for number in (self.label, self.predicted)
        )
        known = {} if place is None else place(self.number)
        where = ", ".join(starmap(_place_text, known.items())) or f"example {self.number:,}"
        return f"{label} → {predicted} {self.probability:.2f}\n{where}"


def classification_examples(
    model: tf_keras.Model,
    batches: Iterable[Tensors],
    *,
    names: Sequence[str] = (),
    total: int | None = None,
    place: Callable[[int], Mapping[str, object]] | None = None,
) -> ReportExamples:
    """Returns the confusion matrix and the mistakes in which the label is the least probable.

    They are those of the first 10,000 examples.

    Args:
        model: Maps images to logits [batch, classes].
        batches: `(images, labels)` or `(images, labels, weights)`. Images are one tensor. Labels
            are class numbers [batch], or one-hot or shares of the classes [batch, classes]. Rows of
            weight 0 are left out.
        names: The names of the classes.
        total: The number of examples of the dataset; None if unknown.
        place: Returns where an example is stored, by its number.
    """
    confusion: Counter[tuple[int, int]] = Counter()
    worst: list[_Mistake] = []
    num_examples = 0
    probabilities: list[np.ndarray] = []
    correct: list[np.ndarray] = []
    for images, labels, shares, numbers in _predictions(model, batches):
        remaining = _MAX_EXAMPLES - num_examples
        predicted = shares.argmax(axis=-1)[:remaining]
        labels = labels[:remaining]
        confusion.update(zip(labels.tolist(), predicted.tolist(), strict=True))
        probabilities.append(shares.max(axis=-1)[:remaining])
        correct.append(predicted == labels)
        rows = np.flatnonzero(predicted != labels)
        rows = rows[np.argsort(shares[rows, labels[rows]], kind="stable")][:_MISTAKES]
        mistakes = [
            _Mistake(
                images[row],
                int(labels[row]),
                int(predicted[row]),
                float(shares[row, predicted[row]]),
                float(shares[row, labels[row]]),
                int(numbers[row]),
            )
            for row in rows.tolist()
        ]
        worst = sorted([*worst, *mistakes], key=lambda mistake: mistake.label_probability)
        worst = worst[:_MISTAKES]
        num_examples += len(labels)
        if num_examples == _MAX_EXAMPLES:
            break
    return ReportExamples(
        note=correct_note(confusion, total),
        confusion=confusion,
        classes=names,
        calibration=calibration_of(probabilities, correct),
        images=np.stack([mistake.image for mistake in worst]) if worst else None,
        captions=[mistake.caption(names, place) for mistake in worst],
    )


def correct_note(confusion: Mapping[tuple[int, int], int], total: int | None) -> str:
    """Returns how many predictions are correct, out of `total` examples; None if unknown."""
    count = sum(confusion.values())
    correct = sum(n for (label, predicted), n in confusion.items() if label == predicted)
    counted = f"the first {count:,} examples"
    if total is not None:
        counted = f"all {total:,} examples" if count >= total else f"{counted} of {total:,}"
    predictions = f"correct prediction{'s' * (correct != 1)}"
    return f"{correct:,} {predictions} for {counted} of the evaluation"


def calibration_of(
    probabilities: Sequence[np.ndarray], correct: Sequence[np.ndarray]
) -> Sequence[tuple[int, float, float]]:
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


def _predictions(
    model: tf_keras.Model, batches: Iterable[Tensors]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yields images, labels, probabilities [n, classes] and example numbers of each batch."""
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


def _place_text(name: str, value: object) -> str:
    """Returns a part of a place. Of the path of an image, its directory is often its class."""
    if name == "file":
        return "/".join(str(value).split("/")[-2:])
    return str(value) if isinstance(value, str) else f"{name} {value}"
