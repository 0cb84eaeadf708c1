"""What the report shows of an evaluation of a table: classes, errors, and the worst rows."""

from __future__ import annotations

import dataclasses
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.tables.columns import TablePart
from orbit_runner.errors import shorten
from orbit_runner.tasks.mistakes import calibration_of, correct_note
from orbit_runner.tasks.report_examples import ColumnImportance, ReportExamples
from orbit_runner.tasks.tabular.config import CLASSIFICATION, TabularConfig, TargetConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.networks import CATEGORICAL, DATES, NUMERIC, TOKENS
from orbit_runner.tasks.tabular.preprocessing import Preprocessing
from orbit_runner.utils.log import Progress

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

_MOST_ROWS = 10_000
_MOST_PERMUTED_ROWS = 5_000
_REPEATS = 5
_WORST = 20
_MOST_COLUMNS = 50
_MOST_CHARACTERS = 400


class _TableTask(Protocol):
    """What the report asks of a task of tables."""

    @property
    def table_config(self) -> TabularConfig: ...

    @property
    def fitted(self) -> Preprocessing: ...

    def part(self, params: TableDataConfig) -> TablePart: ...

    def split_counts(self, inputs: Tensors) -> tuple[Tensors, tf.Tensor]: ...

    def example_losses(
        self, labels: Mapping[str, tf.Tensor], model_outputs: Mapping[str, tf.Tensor]
    ) -> tf.Tensor: ...


@dataclasses.dataclass(frozen=True)
class _Answers:
    """The labels and the outputs of some rows, by target, and the numbers of the rows."""

    labels: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    rows: np.ndarray
    part: TablePart  # that they are in


def table_examples(
    task: _TableTask, model: tf_keras.Model, batches: Iterable[Tensors]
) -> ReportExamples | None:
    """Returns what is known of the predictions for the first 10,000 rows; None without rows."""
    answers = _collect(task, model, batches)
    if answers is None:
        return None
    targets = [_target_examples(task, answers, target) for target in task.table_config.targets]
    if len(targets) == 1:
        return targets[0]
    return ReportExamples(note=_note(answers), others=targets)


def _collect(
    task: _TableTask, model: tf_keras.Model, batches: Iterable[Tensors]
) -> _Answers | None:
    labels: list[dict[str, np.ndarray]] = []
    outputs: list[dict[str, np.ndarray]] = []
    rows: list[np.ndarray] = []
    for features, targets, numbers in _read_rows(task, batches, _MOST_ROWS):
        answers = model(features, training=False)
        labels.append(targets)
        outputs.append({name: value.numpy() for name, value in answers.items()})
        rows.append(numbers)
    if not rows:
        return None
    part = task.part(task.table_config.validation_data)
    numbers = np.concatenate(rows)[:_MOST_ROWS]
    return _Answers(_join(labels, _MOST_ROWS), _join(outputs, _MOST_ROWS), numbers, part)


def _read_rows(
    task: _TableTask, batches: Iterable[Tensors], most: int
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]]:
    """Yields features, targets and numbers of the rows of each batch, until `most` are read."""
    first = 0
    for batch in batches:
        inputs, counts = task.split_counts(batch)
        kept = np.flatnonzero(counts.numpy())
        features, targets = (
            {name: value.numpy()[kept] for name, value in part.items()} for part in inputs[:2]
        )
        yield features, targets, first + kept
        first += len(counts)
        if first >= most:
            return


def _join(parts: Sequence[dict[str, np.ndarray]], most: int) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts])[:most] for name in parts[0]}


def _target_examples(task: _TableTask, answers: _Answers, target: TargetConfig) -> ReportExamples:
    labels = answers.labels[target.column]
    outputs = answers.outputs[target.column]
    if target.type == CLASSIFICATION:
        return _class_examples(task, answers, target.column, labels, outputs)
    return _number_examples(task, answers, target.column, labels, outputs)


def _class_examples(
    task: _TableTask,
    answers: _Answers,
    name: str,
    labels: np.ndarray,
    outputs: np.ndarray,
) -> ReportExamples:
    classes = task.fitted.classes[name]
    shares = tf.nn.softmax(outputs.astype(np.float64)).numpy()
    predicted = shares.argmax(axis=-1)
    of_label = shares[np.arange(len(labels)), labels]
    confusion = Counter(zip(labels.tolist(), predicted.tolist(), strict=True))
    worst = np.argsort(of_label, kind="stable")[:_WORST]
    with np.errstate(divide="ignore"):
        losses = -np.log(of_label)
    return ReportExamples(
        title=name,
        note=correct_note(confusion, answers.part.size),
        confusion=confusion,
        classes=classes,
        calibration=calibration_of([shares.max(axis=-1)], [predicted == labels]),
        head=("place", "label", "prediction", "probability", "loss", "values"),
        rows=[
            (
                answers.part.row_location(int(answers.rows[row])),
                classes[labels[row]],
                classes[predicted[row]],
                f"{shares[row].max():.4f}",
                f"{losses[row]:.4f}",
                _values(task, answers.part, int(answers.rows[row])),
            )
            for row in worst.tolist()
        ],
    )


def _number_examples(
    task: _TableTask,
    answers: _Answers,
    name: str,
    labels: np.ndarray,
    outputs: np.ndarray,
) -> ReportExamples:
    errors = outputs.astype(np.float64) - labels
    sizes = np.abs(errors)
    half, most = np.quantile(sizes, (0.5, 0.9))
    worst = np.argsort(-sizes, kind="stable")[:_WORST]
    return ReportExamples(
        title=name,
        note=_note(answers),
        facts=[
            ("mean error, prediction less label", f"{errors.mean():.6g}"),
            ("standard deviation of the errors", f"{errors.std():.6g}"),
            ("half of the errors are at most", f"{half:.6g}"),
            ("nine tenths of them are at most", f"{most:.6g}"),
            ("largest error", f"{sizes.max():.6g}"),
            ("standard deviation of the labels", f"{labels.std(dtype=np.float64):.6g}"),
        ],
        head=("place", "label", "prediction", "error", "values"),
        rows=[
            (
                answers.part.row_location(int(answers.rows[row])),
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
    return f"predictions for {counted} rows of the validation data"


def _values(task: _TableTask, part: TablePart, row: int) -> str:
    """Returns the features of a row as text."""
    fitted = task.fitted
    names = [*fitted.numeric, *fitted.categorical, *fitted.dates, *fitted.texts]
    columns = {name: part.column(name) for name in names[:_MOST_COLUMNS]}
    texts = [f"{name} {column.text(row) or '-'}" for name, column in columns.items()]
    return shorten(", ".join(texts), _MOST_CHARACTERS)


def permute_columns(
    task: _TableTask,
    model: tf_keras.Model,
    batches: Iterable[Tensors],
    *,
    seed: int,
    seconds: float,
) -> ColumnImportance | None:
    """Returns the rise of the mean loss of the first 5,000 rows if a column is permuted.

    Each permutation is a function of the seed, the column and the repeat. Columns are permuted up
    to five times, as long as there is time. None if there are no rows, or only one column.
    """
    end = time.monotonic() + seconds
    parts = [*_read_rows(task, batches, _MOST_PERMUTED_ROWS)]
    places = dict(_column_places(task.fitted))
    if not parts or len(places) == 1:
        return None
    features = _join([part for part, _, _ in parts], _MOST_PERMUTED_ROWS)
    labels = _join([part for _, part, _ in parts], _MOST_PERMUTED_ROWS)
    rows = len(next(iter(labels.values())))

    @tf.function(autograph=False)
    def mean_loss(inputs: Tensors) -> tf.Tensor:
        return tf.reduce_mean(task.example_losses(labels, model(inputs, training=False)))

    loss = float(mean_loss(features))
    rises: dict[str, list[float]] = {name: [] for name in places}
    progress = Progress("permutation importance")
    pairs = [(repeat, name) for repeat in range(_REPEATS) for name in places]
    for done, (repeat, name) in enumerate(pairs):
        if time.monotonic() > end:
            break
        progress(f"{done:,} of {len(pairs):,} permutations")
        entropy = (seed % 2**64, zlib.crc32(name.encode()), repeat)
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))
        kind, place = places[name]
        permuted = features[kind].copy()
        permuted[:, place] = permuted[generator.permutation(rows)][:, place]
        rises[name].append(float(mean_loss({**features, kind: permuted})) - loss)
    measured = {name: values for name, values in rises.items() if values}
    columns = [
        (name, float(np.mean(values)), float(np.std(values))) for name, values in measured.items()
    ]
    return ColumnImportance(
        loss=loss,
        rows=rows,
        repeats=min(map(len, measured.values()), default=0),
        columns=sorted(columns, key=lambda column: -column[1]),
        unmeasured=len(rises) - len(measured),
    )


def _column_places(fitted: Preprocessing) -> Iterator[tuple[str, tuple[str, slice]]]:
    """Yields each column with the name of its input and its place in it."""
    widths: tuple[tuple[str, Mapping[str, int]], ...] = (
        (NUMERIC, dict.fromkeys(fitted.numeric, 1)),
        (CATEGORICAL, dict.fromkeys(fitted.categorical, 1)),
        (DATES, dict.fromkeys(fitted.dates, 2)),
        (TOKENS, {name: text.max_length for name, text in fitted.texts.items()}),
    )
    for kind, columns in widths:
        first = 0
        for name, width in columns.items():
            yield name, (kind, slice(first, first + width))
            first += width
