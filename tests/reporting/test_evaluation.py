"""The evaluation section of a report: classes, calibration and errors."""

from __future__ import annotations

from orbit_runner.reporting.document import Section
from orbit_runner.reporting.evaluation import (
    calibration_parts,
    class_report,
    evaluation_parts,
)
from orbit_runner.reporting.html import parts_html
from orbit_runner.reporting.report_data import EvaluationData
from orbit_runner.reporting.terminal import section_lines

# Of ten labels a, eight are predicted so; c is never predicted, and d is no label.
COUNTS = {(0, 0): 8, (0, 1): 2, (1, 1): 5, (2, 1): 3, (2, 3): 1}
TRIPLES = [(*pair, count) for pair, count in COUNTS.items()]
BINS = [(10, 0.45, 0.5), (30, 0.9, 0.8), (60, 1.0, 1.0)]


def test_precision_recall_and_f1_are_those_of_the_counts():
    table = class_report(COUNTS, ["a", "b", "c"])

    assert [*table.rows] == [
        ("a", "1.0000", "0.8000", "0.8889", "10", "8"),
        ("b", "0.5000", "1.0000", "0.6667", "5", "10"),
        ("c", "-", "0.0000", "0.0000", "4", "0"),
        ("3", "0.0000", "-", "0.0000", "0", "1"),
    ]


def test_many_classes_are_cut():
    table = class_report({(n, n): 1 for n in range(203)}, [])

    assert len(table.rows) == 201
    assert table.rows[-1][0] == "and 3 more"


def test_the_calibration_error_is_the_mean_difference():
    text = "\n".join(section_lines([Section("", calibration_parts(BINS))]))

    # (10 · 0.05 + 30 · 0.1 + 60 · 0) / 100
    assert "Expected calibration error 0.0350" in text
    rows = [line.split() for line in text.splitlines() if " to " in line]
    assert ["0.4", "to", "0.5", "10", "0.4500", "0.5000"] in rows
    assert ["0.9", "to", "1.0", "30", "0.9000", "0.8000"] in rows
    assert calibration_parts(()) == []


def test_the_page_has_all_parts():
    evaluation = EvaluationData(
        step=7,
        note="all 9 rows",
        confusion=TRIPLES,
        classes=["a<b"],
        calibration=BINS,
        facts=[("largest error", "3.5")],
        head=("place", "error"),
        rows=[("a.csv, row 4", "3.5")],
    )

    html = parts_html(evaluation_parts(evaluation)).replace("<wbr>", "")

    for part in ("Confusion matrix", "Classes", "Calibration", "Errors", "a&lt;b"):
        assert f">{part}<" in html
    assert "<svg" in html
    assert "a.csv, row 4" in html


def test_a_terminal_shows_ten_rows():
    rows = [(f"a.csv, row {n}", "a") for n in range(1, 20)]
    evaluation = EvaluationData(head=("place", "label"), rows=rows)

    text = "\n".join(section_lines([Section("", evaluation_parts(evaluation))]))

    assert "a.csv, row 10" in text
    assert "a.csv, row 11" not in text
