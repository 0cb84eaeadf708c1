"""Formats the records of exports as table rows for terminals and HTML. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.reporting.numbers import short_number

Rows = list[tuple[str, ...]]
_MODEL, _LARGEST = "the model itself", 1e300


def export_head(records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns the headings of the columns of `export_rows`."""
    names = _metric_names(records)
    return ("step", "format", "bytes", "difference", "relative", *names, "ms per example")


def export_rows(records: Sequence[Mapping[str, Any]]) -> Rows:
    """Returns a row for each export and, before those of a step, one for its model.

    Exports that were not compared with the model, such as a SavedModel, have dashes.
    """
    names, rows, step = _metric_names(records), Rows(), None
    for record in records:
        check = _dict(record.get("check"))
        if check and record.get("step") != step:
            step = record.get("step")
            before = _dict(check.get("model_metrics"))
            rows.append(
                (
                    *(_integer(step), _MODEL, _integer(record.get("model_bytes")), "-", "-"),
                    *(_number(before.get(name)) for name in names),
                    _number(check.get("model_ms")),
                )
            )
        after = _dict(check.get("metrics"))
        rows.append(
            (
                *(_integer(record.get("step")), str(record.get("format"))),
                _integer(record.get("bytes")),
                *(_number(check.get(name)) for name in ("difference", "relative")),
                *(_number(after.get(name)) for name in names),
                _number(check.get("ms")),
            )
        )
    return rows


def format_exports(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields the lines of the table."""
    rows = [export_head(records), *export_rows(records)]
    sizes = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        texts = [
            f"{text:<{size}}" if n == 1 else f"{text:>{size}}"
            for n, (text, size) in enumerate(zip(row, sizes, strict=True))
        ]
        yield f"  {'  '.join(texts)}".rstrip()


def _metric_names(records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    found = (_dict(_dict(record.get("check")).get("metrics")) for record in records)
    return tuple(dict.fromkeys(name for metrics in found for name in metrics))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _integer(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "-"


def _number(value: Any) -> str:
    # The file may have been changed, and Python's integers have no limit.
    is_number = isinstance(value, (int, float)) and abs(value) < _LARGEST
    return short_number(float(value)) if is_number else "-"
