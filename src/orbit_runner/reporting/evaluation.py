"""What is known of an evaluation: predictions by class, their probabilities, errors, worst rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbit_runner.reporting.confusion_matrix import Counts, confusion_matrix
from orbit_runner.reporting.document import Chart, Part, Pictures, Section, Series, Table
from orbit_runner.reporting.html import explanation
from orbit_runner.reporting.report_data import EvaluationData

_MOST_CLASSES = 200
_FIRST_ROWS = 10  # The others are folded in a page, and not in a terminal.
_PICTURE_LEGEND = "label → prediction and its probability"
Calibration = Sequence[tuple[int, float, float]]


def evaluation_parts(evaluation: EvaluationData | None) -> list[Part]:
    """Returns all that is known of an evaluation, or why it is not known."""
    if evaluation is None:
        return []
    if evaluation.problem:
        return [explanation(f"examples were not collected: {evaluation.problem}")]
    step = f"step {evaluation.step:,}"
    return [
        explanation(f"{step}: {evaluation.note}" if evaluation.note else step),
        *_target_parts(evaluation),
        *(Section(other.title, [*_target_parts(other)]) for other in evaluation.others),
    ]


def _target_parts(evaluation: EvaluationData) -> Iterator[Part]:
    """Yields what is known of the predictions of one target."""
    matrix = confusion_matrix(evaluation.confusion, evaluation.classes)
    yield Section("Confusion matrix", matrix)
    yield Section("Errors", [Table(evaluation.facts)])
    title = "Worst mistakes" if matrix else "Largest errors" if evaluation.facts else ""
    title = "Largest losses" if "loss" in evaluation.head else title
    legend = [explanation(_PICTURE_LEGEND)] if evaluation.pictures else []
    first, others = evaluation.rows[:_FIRST_ROWS], evaluation.rows[_FIRST_ROWS:]
    tables = [Table(rows, evaluation.head, sentences=True) for rows in (first, others)]
    more = Section(f"{len(others):,} more", tables[1:], is_folded=True)
    yield Section(title, [*legend, Pictures(evaluation.pictures), tables[0], more])
    yield Section("Classes", [class_report(evaluation.confusion, evaluation.classes)])
    yield Section("Calibration", calibration_parts(evaluation.calibration))


def class_report(counts: Counts, names: Sequence[str]) -> Table:
    """Returns precision, recall and F1 of each class, from the counts by (label, prediction)."""
    labels: dict[int, int] = {}
    predictions: dict[int, int] = {}
    for (label, predicted), count in counts.items():
        labels[label] = labels.get(label, 0) + count
        predictions[predicted] = predictions.get(predicted, 0) + count
    classes = sorted({*labels, *predictions})
    rows: list[Sequence[str]] = []
    for number in classes[:_MOST_CLASSES]:
        right = counts.get((number, number), 0)
        total = labels.get(number, 0)
        chosen = predictions.get(number, 0)
        rows.append(
            (
                names[number] if number < len(names) else str(number),
                _share(right, chosen),
                _share(right, total),
                _share(2 * right, total + chosen),
                f"{total:,}",
                f"{chosen:,}",
            )
        )
    if classes[_MOST_CLASSES:]:
        rows.append((f"and {len(classes) - _MOST_CLASSES:,} more", *[""] * 5))
    head = ("class", "precision", "recall", "F1", "labels", "predictions")
    return Table(rows, head, right=range(1, 6))


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.4f}" if whole else "-"


def calibration_parts(bins: Calibration) -> list[Part]:
    """Returns how often predictions are right, by their probability: error, table and chart."""
    total = sum(count for count, _, _ in bins)
    if not total:
        return []
    error = sum(count * abs(share - right) for count, share, right in bins) / total
    return [
        explanation(
            f"expected calibration error {error:.4f}: the mean difference between the probability "
            "of a prediction and the share of right predictions, in tenths of the probability"
        ),
        _reliability_chart(bins),
        calibration_table(bins),
    ]


def calibration_table(bins: Calibration) -> Table:
    """Returns the predictions by tenths of their probability."""
    tenths = [min(int(share * 10), 9) for _, share, _ in bins]
    rows = [
        (f"{tenth / 10} to {(tenth + 1) / 10}", f"{count:,}", f"{share:.4f}", f"{right:.4f}")
        for tenth, (count, share, right) in zip(tenths, bins, strict=True)
    ]
    head = ("probability", "predictions", "mean probability", "right")
    return Table(rows, head, right=(1, 2, 3))


def _reliability_chart(bins: Calibration) -> Chart:
    percents = {round(100 * share): (share, right) for _, share, right in bins}
    right = {percent: right for percent, (_, right) in percents.items()}
    expected = {percent: percent / 100 for percent in sorted({0, 100, *percents})}
    return Chart(
        "share of right predictions",
        [Series("as probable", expected, 1), Series("right", right, 0)],
        x_label="probability of the prediction, in %",
    )
