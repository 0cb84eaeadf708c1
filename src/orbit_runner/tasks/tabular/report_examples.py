"""What the report shows of an evaluation of a table: classes, errors, and the worst rows."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.tables.columns import TablePart
from orbit_runner.errors import shorten
from orbit_runner.tasks.report_examples import ReportExamples, calibration_of, correct_note

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

_MOST_ROWS = 10_000
_WORST = 20
_MOST_COLUMNS = 50
_MOST_CHARACTERS = 400


@dataclasses.dataclass(frozen=True)
class _Answers:
    """The labels and the outputs of some rows, and the numbers of the rows."""

    labels: np.ndarray
    outputs: np.ndarray
    rows: np.ndarray
    part: TablePart  # that they are in


def table_examples(
    task: Any, model: tf_keras.Model, batches: Iterable[Tensors]
) -> ReportExamples | None:
    """Returns what is known of the predictions for the first 10,000 rows; None without rows.

    `task` is a `TabularTask`, whose module imports this one.
    """
    answers = _collect(task, model, batches)
    if answers is None:
        return None
    return (_class_examples if task.fitted.classes else _number_examples)(task, answers)


def _collect(task: Any, model: tf_keras.Model, batches: Iterable[Tensors]) -> _Answers | None:
    name = task.task_config.target.column
    labels: list[np.ndarray] = []
    outputs: list[np.ndarray] = []
    rows: list[np.ndarray] = []
    first = 0
    for batch in batches:
        (features, targets, *_), counts = task.split_counts(batch)
        numbers = np.flatnonzero(counts.numpy())
        features = {name: value.numpy()[numbers] for name, value in features.items()}
        labels.append(targets[name].numpy()[numbers])
        outputs.append(model(features, training=False)[name].numpy())
        rows.append(first + numbers)
        first += len(counts)
        if first >= _MOST_ROWS:
            break
    if not rows:
        return None
    part = task.part(task.task_config.validation_data)
    return _Answers(
        np.concatenate(labels)[:_MOST_ROWS],
        np.concatenate(outputs)[:_MOST_ROWS],
        np.concatenate(rows)[:_MOST_ROWS],
        part,
    )


def _class_examples(task: Any, answers: _Answers) -> ReportExamples:
    labels = answers.labels
    classes = task.fitted.classes
    shares = tf.nn.softmax(answers.outputs.astype(np.float64)).numpy()
    predicted = shares.argmax(axis=-1)
    of_label = shares[np.arange(len(labels)), labels]
    confusion = Counter(zip(labels.tolist(), predicted.tolist(), strict=True))
    worst = np.argsort(of_label, kind="stable")[:_WORST]
    with np.errstate(divide="ignore"):
        losses = -np.log(of_label)
    return ReportExamples(
        note=correct_note(confusion, answers.part.size),
        confusion=confusion,
        classes=classes,
        calibration=calibration_of([shares.max(axis=-1)], [predicted == labels]),
        head=("place", "label", "prediction", "probability", "loss", "values"),
        rows=[
            (
                answers.part.location(int(answers.rows[row])),
                classes[labels[row]],
                classes[predicted[row]],
                f"{shares[row].max():.4f}",
                f"{losses[row]:.4f}",
                _values(task, answers.part, int(answers.rows[row])),
            )
            for row in worst.tolist()
        ],
    )


def _number_examples(task: Any, answers: _Answers) -> ReportExamples:
    labels = answers.labels
    outputs = answers.outputs
    errors = outputs.astype(np.float64) - labels
    sizes = np.nan_to_num(np.abs(errors), nan=np.inf)
    worst = np.argsort(-sizes, kind="stable")[:_WORST]
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
    return ReportExamples(
        note=_note(answers),
        facts=facts,
        head=("place", "label", "prediction", "error", "values"),
        rows=[
            (
                answers.part.location(int(answers.rows[row])),
                f"{labels[row]:.6g}",
                f"{outputs[row]:.6g}",
                f"{errors[row]:.6g}",
                _values(task, answers.part, int(answers.rows[row])),
            )
            for row in worst.tolist()
        ],
    )


def _note(answers: _Answers) -> str:
    count, part = len(answers.rows), answers.part
    counted = f"all {count:,}" if count >= part.size else f"the first {count:,} of {part.size:,}"
    return f"predictions for {counted} rows of the evaluation"


def _values(task: Any, part: TablePart, row: int) -> str:
    """Returns the features of a row as text."""
    fitted = task.fitted
    names = [*fitted.numeric, *fitted.categorical, *fitted.dates, *fitted.texts]
    columns = {name: part.column(name) for name in names[:_MOST_COLUMNS]}
    texts = [f"{name} {column.text(row) or '-'}" for name, column in columns.items()]
    return shorten(", ".join(texts), _MOST_CHARACTERS)
