"""The files behind the report: read as written, and left out if they are damaged."""

from __future__ import annotations

import dataclasses
import json

import pytest

from orbit_runner.reporting.report_data import (
    EvaluationData,
    InputData,
    ModelData,
    Picture,
    ReportData,
    read_data,
    write_data,
)
from orbit_runner.step.results import LayerRow, TensorSummary

# Eight black pixels a side.
_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAADElEQVR42mNgoA4AAABIAAEQRe/SAAAAAElFTkSuQmCC"
)
MODEL = ModelData(
    (LayerRow("conv", "Conv2D", (None, 8, 4), 40, 36, 1.5e6), LayerRow("x", "Y", None, 0, 0, None)),
    2.5e9,
)
INPUTS = InputData(
    step=7,
    pictures=(Picture(_PNG, "cat"),),
    sentences=(("features.inputs", "ein <b>Haus</b>"),),
    tensors=(TensorSummary("features", (64, 8), "uint8", 0.0, 255.0, 4.5),),
)
EVALUATION = EvaluationData(
    step=300,
    note="all 9 examples",
    confusion=((0, 0, 5), (2, 0, 4)),
    classes=("a", "b", "c"),
    pictures=(Picture(_PNG, "c → a 0.98\nexample 3"),),
    head=("source", "translation"),
    rows=(("one", "eins"),),
    calibration=((4, 0.45, 0.5), (5, 0.98, 1.0)),
    facts=(("largest error", "3.5"),),
)


@pytest.fixture
def run(tmp_path):
    for data in (MODEL, INPUTS, EVALUATION):
        write_data(tmp_path, data)
    return tmp_path


def test_files_are_read_as_they_were_written(run):
    assert read_data(run) == ReportData(MODEL, INPUTS, EVALUATION)


def test_missing_files_are_none(tmp_path):
    assert read_data(tmp_path) == ReportData()


@pytest.mark.parametrize("name", ["model", "inputs", "evaluation"])
def test_half_written_file_is_left_out(run, name):
    path = run / "report_data" / f"{name}.json"
    path.write_bytes(path.read_bytes()[:40])
    complete = ReportData(MODEL, INPUTS, EVALUATION)
    assert read_data(run) == dataclasses.replace(complete, **{name: None})


@pytest.mark.parametrize("damage", [[[0, 0]], [3], None])
def test_evaluation_with_other_counts_is_left_out(run, damage):
    path = run / "report_data/evaluation.json"
    values = json.loads(path.read_bytes())
    path.write_text(json.dumps({**values, "confusion": damage}))
    assert read_data(run).evaluation is None
