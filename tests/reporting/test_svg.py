"""Charts as SVG: scales, ticks, gaps, and the reduction of long curves."""

import itertools
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

from orbit_runner.reporting import svg
from orbit_runner.reporting.document import Chart, Section, Series
from orbit_runner.reporting.html import page
from tests.support.pages import Page


def line_chart(title: str, series: Sequence[Series]) -> str:
    return svg.line_chart(Chart(title, series))


def _svg(html: str) -> ET.Element:
    match = re.search(r"<svg.*</svg>", html, re.S)
    return ET.fromstring(match[0])


def _lines(html: str) -> list[str]:
    return [path.attrib["d"] for path in _svg(html).iter("path") if "line" in path.attrib["class"]]


def _positions(line: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", line)]


def test_points_are_drawn_in_order_between_the_axes():
    (line,) = _lines(line_chart("accuracy", [Series("a", {0: 0.0, 50: 1.0, 100: 0.5})]))
    (x0, y0), (x1, y1), (x2, y2) = _positions(line)
    assert x0 < x1 < x2
    assert y1 < y2 < y0  # The y axis points down.
    assert (x1 - x0) == pytest.approx(x2 - x1)
    assert (y0 - y2) == pytest.approx(y2 - y1)


def test_chart_without_numbers_is_empty():
    assert line_chart("accuracy", []) == ""
    assert line_chart("accuracy", [Series("a", {}), Series("b", {1: math.nan})]) == ""


def test_value_that_is_not_finite_interrupts_the_line_and_is_marked():
    html = line_chart("loss", [Series("a", {1: 1.0, 2: 2.0, 3: math.nan, 4: 3.0, 5: math.inf})])
    (line,) = _lines(html)
    assert re.sub(r"[\d. ]", "", line) == "MLM"
    assert html.count('class="bad"') == 2
    assert "a, step 3: not a finite number" in html


_NAN, _INF = math.nan, math.inf
_EXTREMES = (
    [3.0], [0.0], [-2.5, -2.5, -2.5], [1.0, 1.0 + 1e-9], [_NAN, 1.0, _NAN, 2.0],
    [_INF, 1.0, -_INF, 2.0], [_NAN, _NAN], [1e-12, 3e-12], [1e-12, 1.0, 1e12], [-1e12, -1e-12, 5.0],
    [1e-38, 3.4e38], [-1.7e308, 1.7e308], [5e-324, 1.0], [0.0, 5e-324], [-5.0, 5.0] * 100,
)  # fmt: skip


@pytest.mark.parametrize("title", ["accuracy", "loss"])
@pytest.mark.parametrize("values", _EXTREMES)
def test_all_that_a_chart_draws_is_inside_of_its_axes(tmp_path, title, values):
    points = dict(enumerate(values))
    band = {step: (value, value + abs(value)) for step, value in points.items()}
    dots = [
        Series("d" * 200, {step + aside: value}, band={step + aside: ends}, quiet=True, best=step)
        for (step, value), ends in zip(points.items(), band.values(), strict=True)
        for aside in (-0.25, 0.25)
    ]
    powers = Series("a", {10.0 ** (9 * step % 99): 1.0 for step in points})
    charts = [
        Chart(title, [Series("a" * 200, points, best=0)], marks={0: "m", 999: "m"}),
        Chart(title, [Series("a", points, band=band), Series("b", points, quiet=True)]),
        Chart(title, dots, places=[f"{step} of a long name" * 9 for step in points]),
        Chart(title, [powers], is_x_log=True),
    ]
    (tmp_path / "page.html").write_text(page("t", [Section("", charts)]), encoding="utf-8")
    drawn = Page(tmp_path / "page.html")  # It asserts that nothing is outside.
    if any(abs(value) < 1e100 for value in values):
        assert len(drawn.charts) == 4


def test_loss_over_a_wide_range_has_a_logarithmic_axis():
    html = line_chart("loss", [Series("a", {1: 100.0, 2: 10.0, 3: 1.0})])
    (line,) = _lines(html)
    (_, y0), (_, y1), (_, y2) = _positions(line)
    assert (y1 - y0) == pytest.approx(y2 - y1, abs=0.2)
    assert "loss (log)" in html


def test_long_curve_is_reduced_to_the_range_of_each_bucket():
    points = {step: math.sin(step / 5000) for step in range(100_000)}
    points[54_321] = 9.0  # A spike is not lost.
    html = line_chart("x", [Series("a", points)])
    (line,) = _lines(html)
    assert len(_positions(line)) <= 602
    assert len(html) < 16_000
    assert min(y for _, y in _positions(line)) < 30


def test_band_is_drawn_behind_the_line_and_determines_the_axis():
    band = {1: (0.0, 1.0), 2: (0.2, 0.8), 3: (math.nan, 0.9)}
    html = line_chart("accuracy", [Series("a", {1: 0.5, 2: 0.5, 3: 0.5}, 1, band=band)])
    (area,) = [p.attrib["d"] for p in _svg(html).iter("path") if p.attrib["class"] == "band c1"]
    corners = _positions(area)
    assert len(corners) == 4  # The step without a finite value is left out.
    assert corners[0][0] == corners[3][0] < corners[1][0] == corners[2][0]
    assert corners[0][1] > corners[1][1] > corners[2][1] > corners[3][1]
    assert html.index('"band') < html.index('"line')


def test_named_places_replace_the_steps():
    html = svg.line_chart(Chart("accuracy", [Series("mean", {0: 0.5, 1: 0.75})], places="AB"))
    labels = [text.text for text in _svg(html).iter("text") if text.attrib["class"] == "mid"]
    assert labels == ["A", "B"]
    assert "<title>B\nmean: 0.75</title>" in html


def _labels(html: str) -> list[tuple[float, str]]:
    """Returns the places and the texts of the labels of the y axis."""
    texts = [text for text in _svg(html).iter("text") if text.attrib["x"] == "-6"]
    return [(float(text.attrib["y"]), text.text or "") for text in texts]


@pytest.mark.parametrize(("low", "high"), [(25_000.1, 25_000.5), (0.99941, 0.99949), (9e6, 1e7)])
def test_labels_of_close_values_differ_and_are_exact(low, high):
    html = line_chart("x", [Series("a", {0: low, 1: high})])
    labels = _labels(html)
    units = {"k": 1e3, "M": 1e6, "": 1.0}
    values = [float(label.rstrip("kM")) * units[label.lstrip("0123456789.")] for _, label in labels]
    assert len({*values}) == len(values) >= 3
    for (y0, y1), (v0, v1) in zip(
        itertools.pairwise(y for y, _ in labels), itertools.pairwise(values), strict=True
    ):
        assert v1 - v0 == pytest.approx(values[1] - values[0], rel=1e-3)
        assert y1 - y0 == pytest.approx(labels[1][0] - labels[0][0], abs=0.2)
