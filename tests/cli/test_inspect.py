"""`runner inspect`: text, JSON, page and pictures, and its errors."""

from __future__ import annotations

import json
import re
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.reporting.inspection import _measured_rows
from tests.support.problems import output_of

QUIET = "--quiet"


def test_text_has_a_part_for_layers_batches_memory_and_schedule():
    text = output_of(["inspect", "digits", "--train_steps=30", "--trainer.train_epochs=0", QUIET])
    assert re.search(r"^  conv2 +Conv2D +4×4×64 +18,496 +590 k$", text, re.M)
    assert re.search(r"^  trainable parameters +53,002$", text, re.M)
    assert re.search(r"^  features +64×8×8×1 +uint8 +0 +16 ", text, re.M)
    assert re.search(r"^  gradients +207\.04 KiB$", text, re.M)
    assert re.search(r"^  steps +30$", text, re.M)
    assert "start 0.002 (step 0)" in text
    assert "\nmeasured\n" not in text


def test_flag_and_positional_argument_name_the_same_experiment(tmp_path):
    page = tmp_path / "page.html"
    arguments = ["--experiment=digits_mlp", "--json", QUIET, f"--html={page}"]

    output = json.loads(output_of(["inspect", *arguments]))
    assert output["name"] == "digits_mlp"
    assert output["memory"]["weights"] == output["memory"]["gradients"] == 17226 * 4
    text = page.read_text(encoding="utf-8")
    assert "<h2>Layers</h2>" in text
    assert "data:image/png;base64," in text
    assert "<script" not in text


def test_a_section_without_data_is_reported_in_its_place(tmp_path):
    arguments = [
        "fashion_mnist",
        "--task.train_data.source=digits",
        "--task.train_data.data_dir=''",
        f"--task.validation_data.data_dir={tmp_path}",
    ]

    text = output_of(["inspect", *arguments, QUIET])
    assert re.search(r"^training batch\n  tensor", text, re.M)
    assert re.search(r"^validation batch\n  none: .*idx", text, re.M)
    assert re.search(r"^  input batch +\d", text, re.M)


@pytest.mark.slow
def test_tables_get_a_first_look(tmp_path):
    page = tmp_path / "page.html"
    arguments = ["diabetes", "--task.split=null", f"--html={page}", QUIET, "--json"]

    table = json.loads(output_of(["inspect", *arguments]))["table"]

    assert table["rows"] == {"train_data": 442, "validation_data": 442}
    text = page.read_text()
    assert "progression</t" in text
    assert "the results of evaluations may be better than on new data" in text


@pytest.mark.slow
def test_a_cluster_is_rehearsed_without_connecting_to_it(tmp_path, monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a rehearsal starts nothing")

    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for owner, name in (
        (tf.distribute.MultiWorkerMirroredStrategy, "__init__"),
        (tf.distribute, "Server"),
        (tf.config, "experimental_connect_to_cluster"),
    ):
        monkeypatch.setattr(owner, name, refuse)
    hosts = {"worker": ["192.0.2.1:1", "192.0.2.2:1"]}  # Reserved for documentation.
    member = {"cluster": hosts, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(member))
    page = tmp_path / "page.html"
    arguments = ["digits", "--workers=2", "--distribution_strategy=off", f"--html={page}"]

    scale = json.loads(output_of(["inspect", *arguments, QUIET, "--json"]))["scale"]

    assert scale["ring_seconds"] == pytest.approx(53002 * 4 / 12.5e9 + 2 * 10e-6)
    assert "<h2>Rehearsal: 2 workers × 1 GPU</h2>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("seconds", "evaluations", "name"),
    [
        (1.5, 3, "the whole run, estimated"),
        (None, 0, "the whole run, estimated"),
        (None, 3, "the run without evaluations, estimated"),  # of a stream
    ],
)
def test_estimate_says_whether_it_contains_the_evaluations(seconds, evaluations, name):
    measured = SimpleNamespace(
        build_seconds=1.0, trace_seconds=1.0, steps=9, steps_per_second=2.0,
        evaluation_seconds=seconds, run_seconds=60.0,
    )  # fmt: skip
    inspection: Any = SimpleNamespace(
        measured=measured, schedule=SimpleNamespace(evaluations=evaluations)
    )
    assert _measured_rows(inspection)[-1] == (name, "1:00")
