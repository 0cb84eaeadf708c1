"""Charts as SVG: scales, ticks, gaps, and the reduction of long curves."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

from orbit_runner.reporting import svg
from orbit_runner.reporting.document import Chart, Series
from orbit_runner.reporting.svg import COLORS, format_tick, is_logarithmic


def line_chart(title: str, series: Sequence[Series]) -> str:
    return svg.line_chart(Chart(title, series))


def _svg(html: str) -> ET.Element:
    found = re.search(r"<svg.*</svg>", html, re.S)
    assert found is not None
    return ET.fromstring(found[0])


def _lines(html: str) -> list[str]:
    return [path.attrib["d"] for path in _svg(html).iter("path") if "line" in path.attrib["class"]]


def _positions(line: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", line)]


def test_points_are_drawn_in_order_between_the_axes() -> None:
    (line,) = _lines(line_chart("accuracy", [Series("a", {0: 0.0, 50: 1.0, 100: 0.5})]))
    (x0, y0), (x1, y1), (x2, y2) = _positions(line)
    assert x0 < x1 < x2
    assert y1 < y2 < y0  # The y axis points down.
    assert (x1 - x0) == pytest.approx(x2 - x1)
    assert (y0 - y2) == pytest.approx(y2 - y1)


def test_chart_without_numbers_is_empty() -> None:
    assert line_chart("accuracy", []) == ""
    assert line_chart("accuracy", [Series("a", {}), Series("b", {1: math.nan})]) == ""


def test_value_that_is_not_finite_interrupts_the_line_and_is_marked() -> None:
    html = line_chart("loss", [Series("a", {1: 1.0, 2: 2.0, 3: math.nan, 4: 3.0, 5: math.inf})])
    (line,) = _lines(html)
    assert re.sub(r"[\d. ]", "", line) == "MLM"
    assert html.count('class="bad"') == 2
    assert "a, step 3: not a finite number" in html


def test_single_point_and_constant_curve_are_drawn() -> None:
    for points in ({7: 3.0}, {7: 3.0, 8: 3.0}, {7: 0.0}):
        (line,) = _lines(line_chart("accuracy", [Series("a", points)]))
        assert len(_positions(line)) == len(points)


def test_loss_over_a_wide_range_has_a_logarithmic_axis() -> None:
    html = line_chart("loss", [Series("a", {1: 100.0, 2: 10.0, 3: 1.0})])
    (line,) = _lines(html)
    (_, y0), (_, y1), (_, y2) = _positions(line)
    assert (y1 - y0) == pytest.approx(y2 - y1, abs=0.2)
    assert "loss (log)" in html


@pytest.mark.parametrize(
    ("title", "low", "high", "expected"),
    [
        ("training loss", 0.1, 1.0, True),
        ("training loss", 0.2, 1.0, False),
        ("training loss", 0.0, 1.0, False),
        ("training loss", -1.0, 1.0, False),
        ("accuracy", 0.01, 1.0, False),
    ],
)
def test_logarithmic_axis_is_for_positive_losses(
    title: str, low: float, high: float, expected: bool
) -> None:
    assert is_logarithmic(title, low, high) is expected


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.9, 0.99), (-3, 4), (1e-9, 2e-9), (0, 1e12), (-1e-3, 1e6)]
)
def test_axis_has_three_to_eight_round_ticks(low: float, high: float) -> None:
    labels = [
        text.text or ""
        for text in _svg(line_chart("x", [Series("a", {0: low, 1: high})])).iter("text")
        if text.attrib["class"] == "end"
    ]
    assert 3 <= len(labels) <= 8
    assert len(set(labels)) == len(labels)
    assert max(map(len, labels)) <= 9


def test_long_curve_is_reduced_to_the_range_of_each_bucket() -> None:
    points = {step: math.sin(step / 5000) for step in range(100_000)}
    points[54_321] = 9.0  # A spike is not lost.
    html = line_chart("x", [Series("a", points)])
    (line,) = _lines(html)
    assert len(_positions(line)) <= 602
    assert len(html) < 15_000
    assert min(y for _, y in _positions(line)) < 30


def test_series_beyond_the_colors_are_dashed() -> None:
    series = [Series(str(index), {1: 1.0, 2: 2.0}, index) for index in range(COLORS + 1)]
    html = line_chart("x", series)
    assert html.count("stroke-dasharray") == 1
    assert html.count('<span class="key') == COLORS + 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (1500, "1500"), (12_000, "12k"), (2.5e6, "2.5M"), (3e9, "3G"),
     (1e-5, "1e-5"), (0.00015, "1.5e-4"), (-0.5, "-0.5")],
)  # fmt: skip
def test_tick_label_is_short(value: float, text: str) -> None:
    assert format_tick(value) == text


def test_band_is_drawn_behind_the_line_and_determines_the_axis() -> None:
    band = {1: (0.0, 1.0), 2: (0.2, 0.8), 3: (math.nan, 0.9)}
    html = line_chart("accuracy", [Series("a", {1: 0.5, 2: 0.5, 3: 0.5}, 1, band=band)])
    (area,) = [p.attrib["d"] for p in _svg(html).iter("path") if p.attrib["class"] == "band c1"]
    corners = _positions(area)
    assert len(corners) == 4  # The step without a finite value is left out.
    assert corners[0][0] == corners[3][0] < corners[1][0] == corners[2][0]
    assert corners[0][1] > corners[1][1] > corners[2][1] > corners[3][1]
    assert html.index('"band') < html.index('"line')


def test_quiet_lines_have_no_dots_and_no_legend() -> None:
    quiet = [Series(f"quiet {n}", {1: 1.0, 2: 2.0}, quiet=True) for n in range(3)]
    html = line_chart("accuracy", [*quiet, Series("loud", {1: 1.0, 2: 3.0})])
    assert html.count('<path class="quiet"') == 3
    assert html.count("<circle") == 2
    legend = html.partition("class=legend")[2]
    assert "loud" in legend
    assert "quiet" not in legend
    assert "class=legend" not in line_chart("accuracy", quiet)


def test_named_places_replace_the_steps() -> None:
    html = svg.line_chart(Chart("accuracy", [Series("mean", {0: 0.5, 1: 0.75})], places="AB"))
    labels = [text.text for text in _svg(html).iter("text") if text.attrib["class"] == "mid"]
    assert labels == ["A", "B"]
    assert "mean, B: 0.75" in html
