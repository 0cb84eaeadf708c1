"""Sections as lines of a terminal and as a page."""

from __future__ import annotations

import re

from orbit_runner.reporting.document import (
    SHADES,
    Cell,
    Chart,
    Facts,
    HeatMap,
    Joined,
    Parallel,
    ParallelAxis,
    Part,
    Picture,
    Pictures,
    Section,
    Series,
    Table,
    Text,
    limited_examples,
)
from orbit_runner.reporting.html import page, parts_html
from orbit_runner.reporting.terminal import section_lines


def _lines(*parts: Part, width: int | None = None) -> list[str]:
    return [*section_lines([Section("", parts)], width)]


def test_sections_without_contents_are_left_out_of_both():
    sections = [
        Section("nothing", [Table([], head=("a",)), Pictures([]), Text("", "file"), Facts([])]),
        Section("first part", [Table([("a", "1"), ("bc", "20")], right=[-1])]),
        Section("second", [Text("<one>\ntwo"), Section("inner", [Text("run it", "code")])]),
    ]

    assert [*section_lines(sections)] == [
        *("first part", "  a    1", "  bc  20", ""),
        *("second", "  <one>", "  two", "", "  inner", "      run it"),
    ]
    html = page("<title>", sections)
    assert "<h1>&lt;title&gt;</h1>" in html
    assert "<p>&lt;one&gt;<br>two</p>" in html
    assert "nothing" not in html


def test_charts_and_pictures_are_only_in_a_page():
    parallel = Parallel(
        "settings",
        [ParallelAxis("rate", "a.rate", is_log=True), ParallelAxis("<loss>", "b")],
        [Series("one", {0: 0.1, 1: 2.0}, SHADES - 1), Series("two", {0: 0.2})],
    )
    parts = [
        Chart("x", [Series("mean", {0: 1.0, 1: 2.0})]),
        HeatMap("labels", 3, [(1, 2, 0.5, False), (0, 0, 1.0, True)]),
        parallel,
    ]

    assert _lines(*parts, Pictures([Picture("")])) == []
    html = parts_html(parts)
    assert html.count("<figure") == 3
    assert re.findall('class="strand (.*?)"', html) == ["q5", "lost"]
    assert "&lt;loss&gt;" in html


def test_parallel_coordinates_without_results_are_left_out():
    axes = [ParallelAxis("rate", "rate"), ParallelAxis("loss", "loss")]

    for lines in ([], [Series("a", {0: 0.1})], [Series("a", {0: 0.1, 1: float("nan")})]):
        assert parts_html([Parallel("", axes, lines)]) == ""
    assert parts_html([Parallel("", axes[1:], [Series("a", {0: 0.5})])]) == ""


def test_cells_are_escaped_and_a_page_adds_color_link_and_bar():
    links = Joined(["3:", Cell("17", address="a&b.html")])
    cells = ("<i>", Cell("<b>", "bad"), Cell("62%", bar=(0.62, 0.1)))
    table = Table([("a_b", *cells), (links, "", "", "")])

    html = parts_html([table])
    assert "<td>&lt;i&gt;</td><td><span class=bad>&lt;b&gt;</span></td>" in html
    assert 'aria-label="62%"' in html
    assert '3: <a href="a&amp;b.html">17</a>' in html
    assert _lines(table) == ["a_b    <i>  <b>  62%", "3: 17"]


def test_examples_have_a_column_for_each_name_and_say_how_many_are_not_shown():
    rows = [{"row": 0, "file": "a", "is": True}, {"row": 10, "places": [1, 2]}]

    assert _lines(*limited_examples(rows, 1002)) == [
        "row  file  is   places",
        "  0  a     yes  -",
        " 10  -     -    1,2",
        "… and 1,000 more; --all shows all of them",
    ]
    assert _lines(*limited_examples([], 0)) == ["none"]
