"""Sections of a report about the model, its inputs and its mistakes."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence

import numpy as np
import pytest

from orbit_runner.cli.main import main
from orbit_runner.inspection.picture_sheet import thumbnails
from orbit_runner.reporting.document import Part, Picture
from orbit_runner.reporting.evaluation import confusion_matrix, evaluation_parts
from orbit_runner.reporting.html import parts_html
from orbit_runner.reporting.report import input_parts, model_parts
from orbit_runner.reporting.report_data import EvaluationData, InputData, ModelData, write_data
from tests.reporting.test_report_data import EVALUATION, INPUTS, MODEL
from tests.support.run_directories import write_run


def _parts_text(parts: Sequence[Part]) -> str:
    return _text(parts_html(parts))


def _text(html: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", html).split())


def test_small_matrix_is_a_table_of_all_counts():
    html = parts_html(confusion_matrix({(0, 0): 5, (2, 0): 3, (2, 2): 1}, ["<a>", "b", "c"]))

    assert html.count("<tr>") == 5
    assert "recall &lt;a&gt; 5 100% b - c 3 1 25.0% precision 62.5% - 100%" in _text(html)
    assert html.count("class=wrong") == 1


def test_many_classes_are_a_heat_map_with_the_most_frequent_confusions():
    counts = {(n, n): 10 for n in range(30)} | {(n, n + 1): n + 1 for n in range(29)}

    html = parts_html(confusion_matrix(counts, []))

    squares = re.findall(r"M(\d+) (\d+)h1v1h-1z", html)
    assert {(int(label), int(other)) for other, label in squares} == set(counts)
    assert "28 29 29 74.4% 27 28 28 73.7%" in _text(html)


def test_contents_show_what_was_collected():
    evaluation, inputs = _parts_text(evaluation_parts(EVALUATION)), _parts_text(input_parts(INPUTS))

    assert "Step 300: all 9 examples." in evaluation
    assert "c → a 0.98 example 3 source translation one eins" in evaluation
    assert "ein &lt;b&gt;Haus&lt;/b&gt;" in inputs
    assert "features 64×8 uint8 0 255 4.5" in inputs
    model = _parts_text(model_parts(MODEL))
    assert "trainable parameters 36 other parameters 4" in model
    assert "conv Conv2D ?×8×4 40 1.5 M" in model


@pytest.mark.parametrize("content", [evaluation_parts, input_parts, model_parts])
def test_part_without_data_has_no_content(content):
    assert content(None) == []


def test_problem_is_shown_in_place_of_data():
    assert "2 processes" in _parts_text(evaluation_parts(EvaluationData(problem="2 processes")))
    assert "no data" in _parts_text(input_parts(InputData(problem="no data")))


@pytest.mark.slow
def test_report_with_all_sections_is_one_file_below_two_megabytes(here):
    def noise(count: int) -> list[Picture]:
        images = np.random.default_rng(count).integers(0, 256, (count, 224, 224, 3))
        files = thumbnails(images.astype(np.uint8))
        return [Picture(base64.b64encode(png).decode(), "caption") for png in files]

    run = write_run(here / "a")
    rows = np.random.default_rng(0).integers(0, 1000, (10_000, 2)).tolist()
    pairs = [(label, predicted) for label, predicted in rows]
    for data in (
        ModelData(MODEL.layers * 30, 1e9),
        InputData(pictures=noise(32), tensors=INPUTS.tensors),
        EvaluationData(
            confusion=[(*pair, 1) for pair in dict.fromkeys(pairs)],
            classes=[f"class {n}" for n in range(1000)],
            pictures=noise(24),
            head=("source", "reference", "translation"),
            rows=[("word " * 300,) * 3] * 10,
        ),
    ):
        write_data(run, data)

    assert main(["report", "a"]) == 0

    html = (run / "report.html").read_text(encoding="utf-8")
    assert 500_000 < len(html.encode()) < 2_000_000
    assert html.count("<img") == 56
    loaded = re.findall(r"(?:src|href)=([^ >]{0,23})", html)
    assert set(loaded) == {'"data:image/png;base64,'}


def test_large_class_number_needs_no_memory():
    html = parts_html(confusion_matrix({(0, 10**15): 3, (1, 1): 4}, ["cat"]))
    assert "cat</th><td>1000000000000000</td>" in html
    assert len(html) < 3000
