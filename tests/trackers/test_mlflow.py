"""MLflow with a real SQLite database."""

from __future__ import annotations

import dataclasses
import math
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.trackers.base import RunInfo
from orbit_runner.trackers.mlflow import MLflowTracker
from tests.support.toy import Notes, records, run, toy_config


def _info(folder: Path, **changes: Any) -> RunInfo:
    info = RunInfo(
        name="first", mode="train", directory=folder / "a", settings={"runtime.seed": 1},
        config="", step=0, previous_id=None,
    )  # fmt: skip
    return dataclasses.replace(info, **changes)


def _client(store: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")


def _runs(store: Path, experiment: str) -> list[Any]:
    client = _client(store)
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


def _history(store: Path, run_id: str, name: str) -> list[tuple[int, float]]:
    return [
        (metric.step, metric.value) for metric in _client(store).get_metric_history(run_id, name)
    ]


def _tracked(store: Path, info: RunInfo, *logged: tuple[int, Mapping[str, float]]) -> str:
    tracker = MLflowTracker(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    before = {**os.environ}
    run_id = tracker.start(info)
    for step, metrics in logged:
        tracker.log(step, "train", metrics)
    tracker.flush()
    tracker.finish("finished", {"weights_sha256": "ab", "step": "9"})
    assert {name for name in os.environ if name.startswith("MLFLOW")} <= before.keys()
    return run_id


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_run_is_tracked_and_continued_after_a_resume(tmp_path):
    store, folder = tmp_path, tmp_path / "a"
    uri = f"sqlite:///{store / 'mlflow.db'}"
    trackers = f"[{{class_name: mlflow, arguments: {{tracking_uri: '{uri}'}}}}]"
    run(toy_config(trainer__train_steps=10, trackers=trackers), folder)
    (first,) = _runs(store, "run")

    run(toy_config(trackers=trackers), folder)

    (tracked,) = _runs(store, "run")
    assert tracked.info.run_id == first.info.run_id
    assert (tracked.info.status, tracked.info.run_name) == ("FINISHED", "run/a")
    assert tracked.data.params["trainer.optimizer_config.optimizer.type"] == "sgd"
    assert tracked.data.params["trainer.train_steps"] == "10"
    assert len(tracked.data.tags["weights_sha256"]) == 64
    assert tracked.data.tags["weights_sha256"] != first.data.tags["weights_sha256"]
    assert tracked.data.tags["run_directory"] == str(folder)
    assert not [name for name in tracked.data.params if name.startswith("trackers")]
    for split, name in (("train", "training_loss"), ("validation", "error")):
        expected = {line["step"]: line[name] for line in records(folder, split)}
        sent = _history(store, tracked.info.run_id, f"{split}/{name}")
        assert [step for step, _ in sent] == [5, 10, 15, 20]
        assert dict(sent) == pytest.approx(expected)
    assert not (folder / "train").exists()


@pytest.mark.slow
def test_resumed_run_sends_no_step_twice_and_an_unknown_id_creates_another_run(tmp_path):
    info = _info(tmp_path)
    run_id = _tracked(tmp_path, info, (5, {"loss": 1.0}), (10, {"loss": 0.5}))

    continued = dataclasses.replace(info, previous_id=run_id, step=5)
    assert _tracked(tmp_path, continued, (10, {"loss": 0.5}), (15, {"loss": 0.25})) == run_id
    assert _history(tmp_path, run_id, "train/loss") == [(5, 1.0), (10, 0.5), (15, 0.25)]

    missing = _info(tmp_path, previous_id="0" * 32)
    assert _tracked(tmp_path, missing) not in (run_id, "0" * 32)
    assert len(_runs(tmp_path, "first")) == 2


@pytest.mark.slow
def test_settings_and_metrics_beyond_the_limits_are_sent(tmp_path):
    settings = {f"a.x{number}": number for number in range(230)}
    settings |= {"long": "x" * 9000, "empty": "", "odd[0]": [1, 2]}
    metrics = {f"top @ {number}": float(number) for number in range(1200)}
    metrics |= {"nan": math.nan, "infinite": math.inf}

    run_id = _tracked(tmp_path, _info(tmp_path, settings=settings), (1, metrics))

    data = _client(tmp_path).get_run(run_id).data
    assert len(data.params) == 233
    assert len(data.params["long"]) <= 500
    assert (data.params["empty"], data.params["odd_0_"]) == ("''", "[1, 2]")
    assert len(data.metrics) == 1202
    assert data.metrics["train/top _ 7"] == 7.0
    assert math.isnan(data.metrics["train/nan"])


@pytest.mark.slow
def test_server_that_is_down_does_not_end_the_run(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    notes = Notes()

    _, logs = run(
        toy_config(trackers=f"[{{class_name: mlflow, arguments: {{tracking_uri: '{address}'}}}}]"),
        tmp_path,
        notes=notes,
    )

    assert logs["error"] > 0
    assert len(records(tmp_path, "train")) == 4
    warnings = [text for text in notes.notes if text.startswith("warning: tracker mlflow")]
    assert len(warnings) == 2
    assert "that the server is running" in warnings[0]
    assert "8 records could not be sent" in warnings[1]
