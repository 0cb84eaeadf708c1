"""The records of exports as a table. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.reporting.document import Table
from orbit_runner.reporting.numbers import short_number

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_MODEL = "the model itself"
_LARGEST = 1e300


def export_table(records: Sequence[Mapping[str, object]]) -> Table:
    """Returns a table with a row for each export and, before those of a step, one for its model.

    Exports that were not compared with the model, such as a SavedModel, have dashes.
    """
    checks = (_dict(_dict(record.get("check")).get("metrics")) for record in records)
    names = tuple(dict.fromkeys(name for metrics in checks for name in metrics))
    head = ("step", "format", "bytes", "difference", "relative", *names, "ms per example")
    rows: list[tuple[str, ...]] = []
    step = None
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
    return Table(rows, head, right=[column for column in range(len(head)) if column != 1])


def _dict(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _integer(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "-"


def _number(value: Any) -> str:
    # The file may have been changed, and Python's integers have no limit.
    is_number = isinstance(value, (int, float)) and abs(value) < _LARGEST
    return short_number(float(value)) if is_number else "-"
