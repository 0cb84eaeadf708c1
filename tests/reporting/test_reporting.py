"""The results of a run, and the record of its attempts."""

import json
from typing import Any

import pytest

from orbit_runner.reporting.results import Results, rows
from orbit_runner.reporting.run_record import RunRecord


def _results(**changes: Any) -> Results:
    values: dict[str, Any] = {
        "experiment": "digits",
        "mode": "train_and_eval",
        "step": 900,
        "seconds": 12.34,
        "steps_per_second": 321.4,
        "parameters": 12345,
        "metrics": {"validation_loss": 0.25, "validation_examples": 359.0, "accuracy": 0.9},
        "best": {"accuracy": 0.95, "best_ckpt_global_step": 600},
        "best_metric": "accuracy",
        "history": {"accuracy": [0.1, 0.5, 0.9]},
        "fingerprint": "ab" * 32,
        "model_dir": "runs/digits/1",
    }
    return Results(**{**values, **changes})


def test_results_table_lists_the_key_results():
    table = dict(rows(_results()))
    assert table["step"] == "900 in 12.3 s, 321.4 steps/s"
    assert table["accuracy"] == "0.9000  best 0.9500 at step 600"
    assert table["validation_examples"] == "359"
    assert table["parameters"] == "12,345"
    assert table["weights"] == "sha256 " + "ab" * 32
    assert table["run"] == "runs/digits/1"


def test_results_json_replaces_non_finite_values_with_null():
    results = _results(
        metrics={"validation_loss": float("nan"), "accuracy": float("inf")},
        history={"accuracy": [float("nan"), 0.5]},
        steps_per_second=None,
    )
    text = json.dumps(results.as_dict(), allow_nan=False)
    written = json.loads(text)
    assert written["metrics"] == {"validation_loss": None, "accuracy": None}
    assert written["history"] == {"accuracy": [None, 0.5]}
    assert written["step"] == 900


def test_results_name_metrics_that_are_not_finite():
    results = _results(metrics={"accuracy": float("nan")}, non_finite_metrics=["accuracy"])
    assert ("not finite", "accuracy of the last evaluation") in rows(results)


def test_run_record_keeps_every_attempt(tmp_path):
    path = tmp_path / "run.json"
    first = RunRecord(path, ["runner", "a"], "train", 17)
    first.update(devices={"gpus": []})
    first.finish("Interrupted: SIGTERM")
    second = RunRecord(path, ["runner", "b"], "train", 17)
    second.update(replicas=2)
    assert "finished" not in json.loads(path.read_text())["attempts"][1]
    second.finish("done", step=20, metrics={"accuracy": 0.5})
    attempts = json.loads(path.read_text())["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["Interrupted: SIGTERM", "done"]
    assert attempts[0]["argv"] == ["runner", "a"]
    assert attempts[0]["seed"] == 17
    assert attempts[1]["metrics"] == {"accuracy": 0.5}
    assert attempts[1]["replicas"] == 2


def test_run_record_with_nan_is_valid_json(tmp_path):
    path = tmp_path / "run.json"
    RunRecord(path, ["x"], "train", 0).finish("done", metrics={"loss": float("nan")})
    attempts = json.loads(path.read_text(), parse_constant=pytest.fail)["attempts"]
    assert attempts[0]["metrics"] == {"loss": None}
