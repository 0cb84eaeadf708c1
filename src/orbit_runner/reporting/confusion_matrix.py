"""A confusion matrix: a table, or for many classes the most frequent confusions and a heat map."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.reporting.document import Html, Part, Shaded, Table

Counts = Mapping[tuple[int, int], int]
_MOST_IN_TABLE = 20
_MOST_IN_MAP = 100
_MOST_CONFUSIONS = 20
_SHADES = 8


def confusion_matrix(counts: Counts, names: Sequence[str]) -> list[Part]:
    """Returns the matrix of counts by (label, prediction); empty if there are none."""
    if not counts:
        return []
    classes = max(len(names), 1 + max(max(pair) for pair in counts))
    if classes <= _MOST_IN_TABLE:
        return [_matrix(counts, [_title(number, names) for number in range(classes)])]
    drawn = [Html(_heat_map(counts, classes))] if classes <= _MOST_IN_MAP else []
    return [*drawn, _confusions(counts, names)]


def _title(number: int, names: Sequence[str]) -> str:
    return names[number] if number < len(names) else str(number)


def _matrix(counts: Counts, titles: Sequence[str]) -> Table:
    numbers = range(len(titles))
    totals = _totals(counts)
    chosen = _totals({(predicted, label): count for (label, predicted), count in counts.items()})
    right = [counts.get((number, number), 0) for number in numbers]
    rows = [
        (
            title,
            *(_cell(counts.get((label, other), 0), totals, label, other) for other in numbers),
            _share(right[label], totals.get(label, 0)),
        )
        for label, title in enumerate(titles)
    ]
    precisions = (_share(right[other], chosen.get(other, 0)) for other in numbers)
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
    return Shaded(f"{count:,}", opacity, is_right=label == other)


def _share(count: int, total: int) -> str:
    """Returns a share with three digits: of one that is not 1, never `100%`."""
    if not total:
        return "-"
    return "100%" if count == total else f"{min(count / total, 0.999):.1%}"


def _heat_map(counts: Counts, classes: int) -> str:
    paths = "".join(_paths(counts))
    return (
        f"<figure class=heat><figcaption>labels and predictions of {classes} classes</figcaption>"
        f'<p class=soft>label ↓ prediction →</p><svg viewBox="0 0 {classes} {classes}" '
        'role="img" aria-label="confusion matrix">'
        f'<path class=frame d="M0 0h{classes}v{classes}h-{classes}z"/>'
        f"{paths}</svg></figure>"
    )


def _paths(counts: Counts) -> Iterator[str]:
    """Yields the cells as one path for each color and shade."""
    totals = _totals(counts)
    cells = dict[tuple[bool, int], list[str]]()
    for (label, predicted), count in sorted(counts.items()):
        shade = math.ceil(_SHADES * math.sqrt(count / totals[label]))
        square = f"M{predicted} {label}h1v1h-1z"
        cells.setdefault((label == predicted, shade), []).append(square)
    for (is_correct, shade), squares in sorted(cells.items()):
        kind = "" if is_correct else " wrong"
        share = f"{shade / _SHADES:.3g}"
        yield f'<path class="cell{kind}" fill-opacity="{share}" d="{"".join(squares)}"/>'


def _confusions(counts: Counts, names: Sequence[str]) -> Table:
    totals = _totals(counts)
    wrong = [(count, pair) for pair, count in counts.items() if pair[0] != pair[1]]
    wrong.sort(key=lambda count_and_pair: (-count_and_pair[0], count_and_pair[1]))
    rows = [
        (_title(label, names), _title(other, names), f"{count:,}", _share(count, totals[label]))
        for count, (label, other) in wrong[:_MOST_CONFUSIONS]
    ]
    return Table(rows, ("label", "prediction", "examples", "of the label"), right=(-2, -1))


def _totals(counts: Counts) -> dict[int, int]:
    """Returns the number of examples of each label."""
    totals: dict[int, int] = {}
    for (label, _), count in counts.items():
        totals[label] = totals.get(label, 0) + count
    return totals
