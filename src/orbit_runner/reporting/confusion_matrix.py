"""A confusion matrix: a table, or for many classes the most frequent confusions and a heat map."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from orbit_runner.reporting.document import Table
from orbit_runner.reporting.html import table_html

Counts = Mapping[tuple[int, int], int]
_MOST_IN_TABLE = 20
_MOST_IN_MAP = 100
_MOST_CONFUSIONS = 20
_SHADES = 8
_LONG = 3  # characters of a name, after which the names of columns are written upwards


def confusion_matrix(counts: Counts, names: Sequence[str]) -> str:
    """Returns the matrix of counts by (label, prediction); "" if there are none."""
    if not counts:
        return ""
    classes = max(len(names), 1 + max(max(pair) for pair in counts))
    if classes <= _MOST_IN_TABLE:
        return _matrix(counts, [_title(number, names) for number in range(classes)])
    drawn = _heat_map(counts, classes) if classes <= _MOST_IN_MAP else ""
    return drawn + _confusions(counts, names)


def _title(number: int, names: Sequence[str]) -> str:
    return names[number] if number < len(names) else str(number)


def _matrix(counts: Counts, titles: Sequence[str]) -> str:
    upright = " class=up" if max(map(len, titles)) > _LONG else ""
    heads = "".join(f"<th{upright}><span>{escape(title)}</span></th>" for title in titles)
    totals = _totals(counts)
    rows = "".join(
        f"<tr><th scope=row>{escape(title)}</th>"
        + "".join(
            _cell(counts.get((label, other), 0), totals.get(label, 0), is_correct=label == other)
            for other in range(len(titles))
        )
        + f"<td class=sum>{_share(counts.get((label, label), 0), totals.get(label, 0))}</td></tr>"
        for label, title in enumerate(titles)
    )
    chosen = _totals({(predicted, label): count for (label, predicted), count in counts.items()})
    precisions = "".join(
        f"<td class=sum>{_share(counts.get((other, other), 0), chosen.get(other, 0))}</td>"
        for other in range(len(titles))
    )
    return (
        '<div class="table"><table class=confusion><thead><tr>'
        "<th>label&nbsp;↓ prediction&nbsp;→</th>"
        f"{heads}<th>recall</th></tr></thead><tbody>{rows}"
        f"<tr><th scope=row>precision</th>{precisions}<td></td></tr></tbody></table></div>"
    )


def _cell(count: int, total: int, *, is_correct: bool) -> str:
    if not count:
        return "<td></td>"
    kind = "" if is_correct else " class=wrong"
    return f'<td{kind} style="--share:{_shade(count / total):.2f}">{count:,}</td>'


def _share(count: int, total: int) -> str:
    """Returns a share with three digits: of one that is not 1, never `100%`."""
    if not total:
        return "-"
    return "100%" if count == total else f"{min(count / total, 0.999):.1%}"


def _shade(share: float) -> float:
    """Returns the opacity of a cell. The square root keeps rare confusions visible."""
    return 0.08 + 0.5 * math.sqrt(share)


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


def _confusions(counts: Counts, names: Sequence[str]) -> str:
    totals = _totals(counts)
    wrong = [(count, pair) for pair, count in counts.items() if pair[0] != pair[1]]
    wrong.sort(key=lambda count_and_pair: (-count_and_pair[0], count_and_pair[1]))
    rows = [
        (_title(label, names), _title(other, names), f"{count:,}", _share(count, totals[label]))
        for count, (label, other) in wrong[:_MOST_CONFUSIONS]
    ]
    head = ("label", "prediction", "examples", "of the label")
    return table_html(Table(rows, head, right=(-2, -1)))


def _totals(counts: Counts) -> dict[int, int]:
    """Returns the number of examples of each label."""
    totals: dict[int, int] = {}
    for (label, _), count in counts.items():
        totals[label] = totals.get(label, 0) + count
    return totals
