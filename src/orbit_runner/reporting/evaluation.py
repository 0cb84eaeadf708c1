"""What is known of an evaluation: predictions by class, their probabilities, errors, worst rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.reporting.document import (
    Cell,
    Chart,
    HeatMap,
    Part,
    Pictures,
    Section,
    Series,
    Table,
)
from orbit_runner.reporting.html import explanation
from orbit_runner.reporting.report_data import EvaluationData

_MOST_CLASSES = 200
# Of a confusion matrix as a table, of one as a heat map, and of the list beside that.
_MOST_IN_TABLE = 20
_MOST_IN_MAP = 100
_MOST_CONFUSIONS = 20
_FIRST_ROWS = 10  # The others are folded in a page, and not in a terminal.
_PICTURE_LEGEND = "label → prediction and its probability"
Counts = Mapping[tuple[int, int], int]
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
        *_prediction_parts(evaluation),
    ]


def _prediction_parts(evaluation: EvaluationData) -> Iterator[Part]:
    """Yields what is known of the predictions."""
    counts = {(label, other): count for label, other, count in evaluation.confusion}
    matrix = confusion_matrix(counts, evaluation.classes)
    yield Section("Confusion matrix", matrix)
    yield Section("Errors", [Table(evaluation.facts)])
    title = "Worst mistakes" if matrix else "Largest errors" if evaluation.facts else ""
    title = "Largest losses" if "loss" in evaluation.head else title
    legend = [explanation(_PICTURE_LEGEND)] if evaluation.pictures else []
    first, others = evaluation.rows[:_FIRST_ROWS], evaluation.rows[_FIRST_ROWS:]
    tables = [Table(rows, evaluation.head, sentences=True) for rows in (first, others)]
    more = Section(f"{len(others):,} more", tables[1:], is_folded=True)
    yield Section(title, [*legend, Pictures(evaluation.pictures), tables[0], more])
    yield Section("Classes", [class_report(counts, evaluation.classes)])
    yield Section("Calibration", calibration_parts(evaluation.calibration))


def class_report(counts: Counts, names: Sequence[str]) -> Table:
    """Returns precision, recall and F1 of each class, from the counts by (label, prediction)."""
    labels, predictions = _totals(counts), _totals(counts, 1)
    classes = sorted({*labels, *predictions})
    rows: list[Sequence[str]] = []
    for number in classes[:_MOST_CLASSES]:
        right = counts.get((number, number), 0)
        total = labels.get(number, 0)
        num_predicted = predictions.get(number, 0)
        rows.append(
            (
                _title(number, names),
                _share(right, num_predicted),
                _share(right, total),
                _share(2 * right, total + num_predicted),
                f"{total:,}",
                f"{num_predicted:,}",
            )
        )
    if classes[_MOST_CLASSES:]:
        rows.append((f"and {len(classes) - _MOST_CLASSES:,} more", *[""] * 5))
    head = ("class", "precision", "recall", "F1", "labels", "predictions")
    return Table(rows, head, right=range(1, 6))


def _share(part: int, total: int) -> str:
    return f"{part / total:.4f}" if total else "-"


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


def confusion_matrix(counts: Counts, names: Sequence[str]) -> list[Part]:
    """Returns the matrix of counts by (label, prediction); empty if there are none."""
    if not counts:
        return []
    classes = max(len(names), 1 + max(max(pair) for pair in counts))
    if classes <= _MOST_IN_TABLE:
        return [_matrix(counts, [_title(number, names) for number in range(classes)])]
    heat_maps = [_heat_map(counts, classes)] if classes <= _MOST_IN_MAP else []
    return [*heat_maps, _confusions(counts, names)]


def _title(number: int, names: Sequence[str]) -> str:
    return names[number] if number < len(names) else str(number)


def _matrix(counts: Counts, titles: Sequence[str]) -> Table:
    numbers = range(len(titles))
    totals = _totals(counts)
    num_predicted = _totals(counts, 1)
    right = [counts.get((number, number), 0) for number in numbers]
    rows = [
        (
            title,
            *(_cell(counts.get((label, other), 0), totals, label, other) for other in numbers),
            _percent(right[label], totals.get(label, 0)),
        )
        for label, title in enumerate(titles)
    ]
    precisions = (_percent(right[other], num_predicted.get(other, 0)) for other in numbers)
    return Table(
        [*rows, ("precision", *precisions, "")],
        ("label ↓ prediction →", *titles, "recall"),
        right=range(1, len(titles) + 2),
        is_matrix=True,
    )


def _cell(count: int, totals: Mapping[int, int], label: int, other: int) -> str:
    if not count:
        return ""
    # The square root keeps rare confusions visible.
    opacity = 0.08 + 0.5 * math.sqrt(count / totals[label])
    return Cell(f"{count:,}", "good" if label == other else "bad", shade=opacity)


def _percent(count: int, total: int) -> str:
    """Returns a share with three digits: of one that is not 1, never `100%`."""
    if not total:
        return "-"
    return "100%" if count == total else f"{min(count / total, 0.999):.1%}"


def _heat_map(counts: Counts, classes: int) -> HeatMap:
    totals = _totals(counts)
    cells = [
        (label, predicted, math.sqrt(count / totals[label]), label == predicted)
        for (label, predicted), count in sorted(counts.items())
    ]
    return HeatMap(f"{classes} classes: label ↓ prediction →", classes, cells)


def _confusions(counts: Counts, names: Sequence[str]) -> Table:
    totals = _totals(counts)
    wrong = [(count, pair) for pair, count in counts.items() if pair[0] != pair[1]]
    wrong.sort(key=lambda count_and_pair: (-count_and_pair[0], count_and_pair[1]))
    rows = [
        (_title(label, names), _title(other, names), f"{count:,}", _percent(count, totals[label]))
        for count, (label, other) in wrong[:_MOST_CONFUSIONS]
    ]
    return Table(rows, ("label", "prediction", "examples", "of the label"), right=(-2, -1))


def _totals(counts: Counts, part: int = 0) -> dict[int, int]:
    """Returns the number of examples of each label, or with `part` 1 of each prediction."""
    totals: dict[int, int] = {}
    for pair, count in counts.items():
        totals[pair[part]] = totals.get(pair[part], 0) + count
    return totals
