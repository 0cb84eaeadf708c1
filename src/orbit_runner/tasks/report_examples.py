"""What the report of a run shows of an evaluation, as a task returns it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

_MAX_EXAMPLES = 10_000
_MISTAKES = 24  # with pictures
_WORST = 20  # rows of a table
_BINS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportExamples:
    """What the report of a run shows of an evaluation. Each part can be left empty.

    Attributes:
        title: What the examples are predictions of; the report shows it above those in `others`.
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
        others: The same for each of several targets.
    """

    title: str = ""
    note: str = ""
    confusion: Mapping[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    classes: Sequence[str] = ()
    calibration: Sequence[tuple[int, float, float]] = ()
    facts: Sequence[tuple[str, str]] = ()
    images: np.ndarray | None = None
    captions: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    others: Sequence[ReportExamples] = ()


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
        label, predicted = (_class_name(number, names) for number in (self.label, self.predicted))
        known = {} if place is None else place(self.number)
        where = ", ".join(starmap(_place_text, known.items())) or f"example {self.number:,}"
        return f"{label} → {predicted} {self.probability:.2f}\n{where}"


@dataclasses.dataclass(frozen=True)
class Answers:
    """The labels and the outputs of some examples by name, and the numbers of the examples."""

    labels: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    numbers: np.ndarray


def collect_answers(
    batches: Iterable[Tensors],
    answer: Callable[[Tensors], tuple[Mapping[str, Any], Mapping[str, Any], tf.Tensor]],
) -> Answers | None:
    """Returns the answers of a model for the first 10,000 examples; None without batches.

    `answer` returns the labels and the outputs of a batch, and float [batch], 0 for rows that are
    no examples.
    """
    parts = []
    first = 0
    for batch in batches:
        labels, outputs, counts = answer(batch)
        rows = np.flatnonzero(counts)
        values = tf.nest.map_structure(np.asarray, (dict(labels), dict(outputs)))
        parts.append(
            (*tf.nest.map_structure(lambda value, at=rows: value[at], values), first + rows)
        )
        first += len(counts)
        if first >= _MAX_EXAMPLES:
            break
    if not parts:
        return None
    joined = tf.nest.map_structure(lambda *values: np.concatenate(values)[:_MAX_EXAMPLES], *parts)
    return Answers(*joined)


@dataclasses.dataclass(frozen=True)
class Target:
    """What a model predicts: classes or numbers.

    Attributes:
        name: Its name; "" if there is only one.
        labels: The class numbers or the numbers of some examples, [n].
        outputs: The probabilities of the classes, float64 [n, classes], or the numbers, [n].
        classes: The names of the classes; None for numbers.
    """

    name: str
    labels: np.ndarray
    outputs: np.ndarray
    classes: Sequence[str] | None


@dataclasses.dataclass(frozen=True)
class ShownExamples:
    """The examples of which a table shows the worst.

    Attributes:
        numbers: Their numbers, int64 [n].
        total: The number of all examples of the dataset; None if unknown.
        place: Returns where an example is stored, by its number.
        values: Returns its features as text; None to leave them out.
    """

    numbers: np.ndarray
    total: int | None
    place: Callable[[int], str]
    values: Callable[[int], str] | None = None

    def table(self, order: np.ndarray, cells: Mapping[str, Callable[[int], str]]) -> dict[str, Any]:
        """Returns head and rows of a table of the first examples in an order.

        `cells` has for each column what returns the text of an example.
        """
        columns = {"place": lambda row: self.place(int(self.numbers[row])), **cells}
        if (values := self.values) is not None:
            columns["values"] = lambda row: values(int(self.numbers[row]))
        rows = order[:_WORST].tolist()
        return {
            "head": [*columns],
            "rows": [tuple(cell(row) for cell in columns.values()) for row in rows],
        }


def table_examples(targets: Sequence[Target], shown: ShownExamples) -> ReportExamples | None:
    """Returns the predictions of each target by class or error, and the worst examples.

    None without targets.
    """
    counted = _counted(len(shown.numbers), shown.total, "rows")
    note = f"predictions for {counted} of the evaluation"
    parts = [
        _number_examples(target, shown, note)
        if target.classes is None
        else _class_examples(target, shown, target.classes)
        for target in targets
    ]
    if len(parts) < 2:
        return parts[0] if parts else None
    return ReportExamples(note=note, others=parts)


def _class_examples(target: Target, shown: ShownExamples, classes: Sequence[str]) -> ReportExamples:
    labels, shares = target.labels, target.outputs
    predicted = shares.argmax(axis=-1)
    largest = shares.max(axis=-1)
    of_label = shares[np.arange(len(labels)), labels]
    with np.errstate(divide="ignore"):
        losses = -np.log(of_label)
    cells = {
        "label": lambda row: _class_name(int(labels[row]), classes),
        "prediction": lambda row: _class_name(int(predicted[row]), classes),
        "probability": lambda row: f"{largest[row]:.4f}",
        "loss": lambda row: f"{losses[row]:.4f}",
    }
    table = shown.table(np.argsort(of_label, kind="stable"), cells)
    return _class_report(
        labels, predicted, largest, classes, shown.total, title=target.name, **table
    )


def _number_examples(target: Target, shown: ShownExamples, note: str) -> ReportExamples:
    labels, outputs = target.labels, target.outputs
    errors = outputs.astype(np.float64) - labels
    sizes = np.nan_to_num(np.abs(errors), nan=np.inf)
    facts = [("standard deviation of the labels", f"{labels.std(dtype=np.float64):.6g}")]
    finite = errors[np.isfinite(errors)]
    if finite.size:
        half, most, largest = np.quantile(np.abs(finite), (0.5, 0.9, 1.0))
        facts = [
            ("mean error, prediction less label", f"{finite.mean():.6g}"),
            ("standard deviation of the errors", f"{finite.std():.6g}"),
            ("half of the errors are at most", f"{half:.6g}"),
            ("nine tenths of them are at most", f"{most:.6g}"),
            ("largest error", f"{largest:.6g}"),
            *facts,
        ]
    if finite.size < errors.size:
        facts.append(("predictions that are not finite", f"{errors.size - finite.size:,}"))
    cells = {
        "label": lambda row: f"{labels[row]:.6g}",
        "prediction": lambda row: f"{outputs[row]:.6g}",
        "error": lambda row: f"{errors[row]:.6g}",
    }
    table = shown.table(np.argsort(-sizes, kind="stable"), cells)
    return ReportExamples(title=target.name, note=note, facts=facts, **table)


def softmax_of(model: tf_keras.Model) -> Callable[[Tensors], tf.Tensor]:
    """Returns a function from inputs to the probabilities of a model that returns logits."""
    return lambda inputs: tf.nn.softmax(tf.cast(model(inputs, training=False), tf.float64))


def classification_examples(
    predict: Callable[[Tensors], tf.Tensor],
    batches: Iterable[Tensors],
    *,
    names: Sequence[str] = (),
    total: int | None = None,
    place: Callable[[int], Mapping[str, object]] | None = None,
) -> ReportExamples:
    """Returns the confusion matrix and the mistakes in which the label is the least probable.

    They are those of the first 10,000 examples.

    Args:
        predict: Maps images to the probabilities of the classes, float64 [batch, classes].
        batches: `(images, labels)` or `(images, labels, weights)`. Images are one tensor. Labels
            are class numbers [batch], or one-hot or shares of the classes [batch, classes]. Rows of
            weight 0 are left out.
        names: The names of the classes.
        total: The number of examples of the dataset; None if unknown.
        place: Returns where an example is stored, by its number.
    """
    worst: list[_Mistake] = []
    num_examples = 0
    parts: list[tuple[np.ndarray, ...]] = []  # labels, predictions and their probabilities
    for images, labels, shares, numbers in _predictions(predict, batches):
        remaining = _MAX_EXAMPLES - num_examples
        predicted = shares.argmax(axis=-1)[:remaining]
        labels = labels[:remaining]
        parts.append((labels, predicted, shares.max(axis=-1)[:remaining]))
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
    columns = [*zip(*parts, strict=True)] or [(np.zeros(0, np.int64),)] * 3
    labels, predicted, probabilities = map(np.concatenate, columns)
    return _class_report(
        labels,
        predicted,
        probabilities,
        names,
        total,
        images=np.stack([mistake.image for mistake in worst]) if worst else None,
        captions=[mistake.caption(names, place) for mistake in worst],
    )


def _class_report(
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    classes: Sequence[str],
    total: int | None,
    **parts: Any,
) -> ReportExamples:
    """Returns the report of classes by number: labels, predictions and their probabilities, [n].

    `total` is the number of all examples, None if unknown; `parts` are other parts of the report.
    """
    is_correct = predicted == labels
    correct = int(is_correct.sum())
    predictions = f"{correct:,} correct prediction{'s' * (correct != 1)}"
    return ReportExamples(
        note=f"{predictions} for {_counted(len(labels), total, 'examples')} of the evaluation",
        confusion=Counter(zip(labels.tolist(), predicted.tolist(), strict=True)),
        classes=classes,
        calibration=_calibration(probabilities, is_correct),
        **parts,
    )


def _counted(count: int, total: int | None, unit: str) -> str:
    """Returns which examples are shown, out of `total`; None if unknown."""
    if total is None:
        return f"the first {count:,} {unit}"
    return f"all {total:,} {unit}" if count >= total else f"the first {count:,} {unit} of {total:,}"


def _calibration(shares: np.ndarray, is_correct: np.ndarray) -> Sequence[tuple[int, float, float]]:
    """Returns the bins of `ReportExamples.calibration`, of the probabilities of predictions."""
    finite = np.isfinite(shares)
    shares = shares[finite]
    hits = is_correct[finite]
    places = np.minimum((shares * _BINS).astype(np.int64), _BINS - 1)
    bins = []
    for place in np.unique(places).tolist():
        inside = places == place
        bins.append((int(inside.sum()), float(shares[inside].mean()), float(hits[inside].mean())))
    return bins


def _class_name(number: int, names: Sequence[str]) -> str:
    return names[number] if number < len(names) else str(number)


def _predictions(
    predict: Callable[[Tensors], tf.Tensor], batches: Iterable[Tensors]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yields images, labels, probabilities [n, classes] and example numbers of each batch."""
    first = 0
    for batch in batches:
        images, labels, weights = tf_keras.utils.unpack_x_y_sample_weight(batch)
        shares = predict(images).numpy()
        targets = labels.numpy()
        if targets.ndim == 2:
            targets = targets.argmax(axis=-1)
        rows = np.arange(len(targets)) if weights is None else np.flatnonzero(weights.numpy())
        yield images.numpy()[rows], targets[rows], shares[rows], first + rows
        first += len(targets)


def _place_text(name: str, value: object) -> str:
    """Returns a part of a place. Of the path of an image, its directory is often its class."""
    if name == "file":
        return "/".join(str(value).split("/")[-2:])
    return str(value) if isinstance(value, str) else f"{name} {value}"
