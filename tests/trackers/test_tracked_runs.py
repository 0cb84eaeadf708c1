"""Runs with trackers of their own, failing ones among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.stop_requests import StoppedAtStep
from orbit_runner.train.trainer import Trainer
from tests.support.problems import raises
from tests.support.toy import Notes, records, run, toy_config, weights
from tests.trackers import trackers_of_tests

_MODULE = "tests.trackers.trackers_of_tests"


def _own(name: str, **arguments: str) -> str:
    return json.dumps([{"class_name": f"{_MODULE}.{name}", "arguments": arguments}])


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_own_tracker_receives_the_records_of_a_run_and_of_its_resume(tmp_path):
    folder, path = tmp_path / "a", tmp_path / "tracked"
    trackers = _own("FileTracker", path=str(path))
    run(toy_config(trainer__train_steps=10, trackers=trackers), folder)
    run(toy_config(trackers=trackers), folder)

    lines = _lines(path)
    starts = [line for line in lines if line["event"] == "start"]
    assert [(record["id"], record["step"], record["mode"]) for record in starts] == [
        ("first", 0, "train_and_eval"),
        ("first", 10, "train_and_eval"),
    ]
    assert "trackers" not in starts[0]["sections"]
    assert "runtime" in starts[0]["sections"]
    assert "learning_rate: 0.1" in starts[0]["config"]
    assert str(path) not in starts[0]["config"]
    logged = [line for line in lines if line["event"] == "log"]
    for split in ("train", "validation"):
        expected = [
            {name: value for name, value in line.items() if name not in ("split", "time")}
            for line in records(folder, split)
        ]
        sent = [
            {"step": record["step"], **record["metrics"]}
            for record in logged
            if record["split"] == split
        ]
        assert [record["step"] for record in sent] == [5, 10, 15, 20]
        for left, right in zip(sent, expected, strict=True):
            assert left == pytest.approx(right)
    ends = [line for line in lines if line["event"] == "finish"]
    assert [(record["status"], record["results"]["step"]) for record in ends] == [
        ("finished", "10"),
        ("finished", "20"),
    ]
    newest = json.loads((folder / "checkpoints" / "ckpt-20.json").read_text())
    assert ends[1]["results"]["weights_sha256"] == newest["weights"]


@pytest.mark.usefixtures("patient")
def test_evaluation_is_tracked_apart_from_training(tmp_path):
    folder, path = tmp_path / "a", tmp_path / "tracked"
    config = toy_config(trackers=_own("FileTracker", path=str(path)))
    run(config, folder)
    path.unlink()
    (folder / "trackers.json").write_text('{"other": "1"}')

    run(config, folder, "eval")

    start, logged, end = _lines(path)
    assert (start["id"], start["mode"]) == ("first", "eval")
    assert (logged["step"], logged["split"]) == (20, "validation")
    assert end["status"] == "finished"
    assert (folder / "trackers.eval.json").exists()
    assert (folder / "trackers.json").read_text() == '{"other": "1"}'


class _Raise(Callback):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def on_evaluate(self, run: Any, logs: Any) -> None:
        raise self._error


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("bug"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
        (StoppedAtStep("left"), "interrupted"),
    ],
)
def test_tracker_learns_how_a_run_ended(error, status, tmp_path):
    path = tmp_path / "tracked"
    config = toy_config(trackers=_own("FileTracker", path=str(path)))
    with pytest.raises(type(error)):
        run(config, tmp_path / "a", callbacks=[_Raise(error)])

    end = _lines(path)[-1]
    assert (end["event"], end["status"]) == ("finish", status)
    assert end["results"]["step"] == "5"
    assert end["results"]["reason"]


@pytest.mark.slow
def test_broken_trackers_only_cause_warnings(tmp_path, monkeypatch):
    monkeypatch.setattr("orbit_runner.trackers.tracking._WAIT", 2.0)
    model, logs = run(toy_config(trackers="[]"), tmp_path / "without")
    broken = [
        *({"method": name} for name in ("__init__", "start", "log", "flush", "finish")),
        {"class": "ExitingTracker"},
        {"class": "HangingTracker"},
    ]
    trackers = [
        {"class_name": f"{_MODULE}.{each.pop('class', 'FailingTracker')}", "arguments": each}
        for each in broken
    ]
    notes = Notes()
    trackers_of_tests.release.clear()

    config = toy_config(trackers=json.dumps(trackers))
    tracked, same = run(config, tmp_path / "with", notes=notes)
    trackers_of_tests.release.set()

    assert [value.tobytes() for value in weights(tracked)] == [
        value.tobytes() for value in weights(model)
    ]
    assert same["error"] == logs["error"]
    warnings = [text for text in notes.notes if text.startswith("warning: tracker")]
    # One when it breaks, unless it hangs or breaks at the end, and one for what was not sent.
    assert sum("could not be sent" in text for text in warnings) == len(trackers)
    assert len(warnings) <= 2 * len(trackers)


def test_records_do_not_end_loops_because_of_a_tracker(tmp_path, monkeypatch):
    calls: list[bool] = []
    monkeypatch.setattr(Trainer, "_build_recorder", lambda self: calls.append(True))

    run(toy_config(trackers=_own("FileTracker", path=str(tmp_path / "tracked"))), tmp_path / "a")

    assert calls == [True]


@pytest.mark.parametrize(
    ("trackers", "path", "code"),
    [
        (_own("NoTracker"), "trackers[0].class_name", "import-failed"),
        (_own("FileTraker"), "trackers[0].class_name", "unknown-name"),
        (_own("FileTracker", pth="x"), "trackers[0].arguments", "bad-arguments"),
    ],
)
def test_wrong_class_is_an_error_before_training(trackers, path, code, tmp_path):
    with raises(code, path):
        run(toy_config(trackers=trackers), tmp_path)
    assert records_or_none(tmp_path) is None


def records_or_none(folder: Path) -> Any:
    return records(folder, "train") if (folder / "metrics.jsonl").exists() else None


@pytest.mark.parametrize(("trackers", "written"), [("[]", False), ("[tensorboard]", True)])
def test_event_files_are_written_only_with_the_tracker_tensorboard(trackers, written, tmp_path):
    run(toy_config(trackers=trackers), tmp_path)

    assert (tmp_path / "train").exists() is written
    assert (tmp_path / "validation").exists() is written
    assert len(records(tmp_path, "train")) == 4
