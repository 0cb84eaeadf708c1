"""Sections as lines of a terminal and as a page."""

from __future__ import annotations

import re

from orbit_runner.reporting.document import (
    Best,
    Chart,
    Html,
    Part,
    Picture,
    Pictures,
    Section,
    Series,
    Table,
    Text,
    limited_examples,
)
from orbit_runner.reporting.html import Markup, page, parts_html
from orbit_runner.reporting.terminal import section_lines


def _lines(*parts: Part, width: int | None = None) -> list[str]:
    return [*section_lines([Section("", parts)], width)]


def test_sections_without_contents_are_left_out_of_both() -> None:
    sections = [
        Section("nothing", [Table([], head=("a",)), Pictures([]), Html("")]),
        Section("first part", [Table([("a", "1"), ("bc", "20")], right=[-1])]),
        Section("second", [Text("<one>\ntwo"), Section("inner", [Text("run it", "code")])]),
    ]

    assert [*section_lines(sections)] == [
        *("first part", "  a    1", "  bc  20", ""),
        *("second", "  <one>", "  two", "", "  inner", "      run it"),
    ]
    html = page("<title>", sections)
    assert re.findall(r"<h\d>.*?</h\d>", html) == [
        *("<h1>&lt;title&gt;</h1>", "<h2>First part</h2>", "<h2>Second</h2>", "<h3>Inner</h3>"),
    ]
    assert "<p>&lt;one&gt;<br>two</p>" in html
    assert "<td class=number>20</td>" in html
    assert "nothing" not in html


def test_charts_and_pictures_are_only_in_a_page() -> None:
    parts = [Chart("x", [Series("mean", {0: 1.0, 1: 2.0})]), Html("<hr>")]

    assert _lines(*parts, Pictures([Picture("")])) == []
    assert "<figure>" in parts_html(parts)


def test_cells_are_escaped_unless_they_are_markup() -> None:
    html = parts_html([Table([("a_b", "<i>", Markup("<b>x</b>"))])])

    assert "a_b</th><td>&lt;i&gt;</td><td><b>x</b></td>" in html


def test_examples_have_a_column_for_each_name_and_say_how_many_are_not_shown() -> None:
    rows = [{"row": 0, "file": "a", "is": True}, {"row": 10, "places": [1, 2]}]

    assert _lines(*limited_examples(rows, 1002)) == [
        "row  file  is   places",
        "  0  a     yes  -",
        " 10  -     -    1,2",
        "… and 1,000 more; --all shows all of them",
    ]
    assert _lines(*limited_examples([], 0)) == ["none"]


def test_best_value_of_a_row_is_marked() -> None:
    table = Table([("accuracy", "0.8", Best("0.9 (+0.1)"))], head=["", "a", "b"], keys=True)

    assert "<td>0.8</td><td><b class=good>0.9 (+0.1)</b></td>" in parts_html([table])
    assert _lines(table, width=80)[1].split("  ")[-1].strip() == "0.9 (+0.1) *"
