"""The exports of a run as a section of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orbit_runner.reporting.html.page import paragraph, table
from orbit_runner.reporting.text.exports import export_head, export_rows


def exports_content(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns the sizes, differences and times of the exports; "" if there are none."""
    if not records:
        return ""
    checks = [one["check"] for one in records if isinstance(one.get("check"), dict)]
    counts = sorted({str(one.get("examples", "?")) for one in checks})
    note = f"compared with the model on {' and '.join(counts)} validation examples"
    rows = export_rows(records)
    return (paragraph(note) if checks else "") + table(
        export_head(records), rows, right=len(rows[0]) - 2
    )
