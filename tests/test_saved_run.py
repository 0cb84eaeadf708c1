"""`load`, `runs` and the result of `run`: what a run directory contains, as an object."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import orbit_runner
from orbit_runner import History, RunnerError
from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from tests.support import keras_models
from tests.support.problems import raises

_OVERRIDES = {
    "trainer.summary_interval": 3,
    "trainer.best_checkpoint_export_subdir": "best",
    "trainer.best_checkpoint_eval_metric": "validation_loss",
    "trainer.best_checkpoint_metric_comp": "lower",
    "trainer.optimizer_config.ema": {"average_decay": 0.9},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def result(root):
    return orbit_runner.run(
        keras_models.classifier,
        keras_models.classes(),
        validation_data=keras_models.classes(40, seed=2),
        metrics=["accuracy"],
        epochs=3,
        learning_rate=0.01,
        model_dir=root / "a",
        overrides=_OVERRIDES,
        progress="none",
    )


@pytest.mark.slow
def test_history_has_evaluations_and_training_records(result):
    history = result.history
    lines = (result.model_dir / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for split, prefix in (("validation", ""), ("train", "training_")):
        values = [record["accuracy"] for record in records if record["split"] == split]
        assert len(values) >= 3
        assert history[f"{prefix}accuracy"] == values
    assert history.steps("accuracy") == [
        record["step"] for record in records if record["split"] == "validation"
    ]
    assert history["accuracy"][-1] == pytest.approx(result.metrics["accuracy"])
    assert {"training_loss", "validation_loss", "learning_rate"} < set(history)
    with pytest.raises(KeyError, match="did you mean 'accuracy'"):
        history["acuracy"]


@pytest.mark.slow
def test_history_as_a_frame_has_a_row_for_each_step(result, monkeypatch):
    pytest.importorskip("pandas")
    history = result.history
    frame = history.to_pandas()
    assert frame.index.name == "step"
    assert frame["accuracy"].dropna().to_dict() == dict(
        zip(history.steps("accuracy"), history["accuracy"], strict=True)
    )
    steps = {*history.steps("accuracy"), *history.steps("training_loss")}
    assert list(frame.index) == sorted(steps)

    monkeypatch.setitem(sys.modules, "pandas", None)
    with raises("missing-package", "to_pandas"):
        history.to_pandas()


def test_loaded_run_is_that_of_the_result(result):
    saved = orbit_runner.load(result.model_dir)
    assert orbit_runner.load(result.model_dir) == saved

    assert (saved.status, saved.step, saved.train_steps) == ("finished", result.step, result.step)
    assert (saved.weights, saved.best) == (result.weights, result.best)
    for name, value in result.metrics.items():
        assert saved.metrics[name] == pytest.approx(value)
    assert dict(saved.history) == dict(result.history)
    assert (saved.name, saved.report) == (result.name, result.report)
    assert saved.config.trainer.train_epochs == 3
    assert (saved.seed, saved.inexact, saved.reason) == (0, (), "")


def test_repr_is_five_lines_with_what_a_person_wants_to_see(result):
    text = repr(result)
    assert text.count("\n") == 4
    assert f"accuracy {result.metrics['accuracy']:.4f}" in text
    assert f"at step {result.best['best_ckpt_global_step']}\n" in text
    assert result.weights[:16] in text


def test_plot_is_an_svg_document_with_a_chart_for_each_metric(result, tmp_path):
    plot = result.plot()
    plot.save(tmp_path / "curves.svg")

    assert plot._repr_svg_() == (tmp_path / "curves.svg").read_text()
    elements = ET.fromstring(plot.svg).iter()
    texts = {element.text for element in elements if element.tag.endswith("}text")}
    assert {"accuracy", "loss", "training", "validation"} < texts
    assert "learning rate" not in texts  # It does not change.


def test_notebook_shows_a_table_and_the_curves(result):
    html = result._repr_html_()
    assert result.weights[:16] in html
    image = re.search(r"base64,([^\"]+)", html)
    assert base64.b64decode(image[1]).decode() == result.plot().svg
    assert "<style" not in html  # It would change the rest of the notebook.


def test_run_without_records_is_shown(root):
    history = History({})
    assert (len(history), list(history)) == (0, [])
    assert ET.fromstring(history.plot().svg) is not None


def test_model_has_the_weights_of_a_checkpoint(result):
    saved = orbit_runner.load(result.model_dir)
    assert result.best["best_ckpt_global_step"] == result.step  # the same weights, averaged

    average = saved.model()
    best = saved.model("best")
    assert weights_fingerprint(average) == weights_fingerprint(best)
    assert all(map(np.array_equal, average.get_weights(), best.get_weights()))
    assert all(map(np.array_equal, average.get_weights(), result.model.get_weights()))
    assert weights_fingerprint(result.model) != result.weights  # Of the weights without average.
    assert average(np.zeros([2, 4], "float32")).shape == (2, 3)


@pytest.mark.parametrize(
    ("checkpoint", "code"),
    [(1, "unknown-step"), ("newest", "not-allowed"), (True, "not-allowed")],
)
def test_other_checkpoints_are_refused(result, checkpoint, code):
    with raises(code, "checkpoint"):
        orbit_runner.load(result.model_dir).model(checkpoint)


def test_report_is_written_if_it_does_not_exist(result):
    result.report.unlink()
    assert "<!doctype html>" in orbit_runner.load(result.model_dir).report.read_text()


def test_runs_are_a_sequence_with_the_newest_first(root, result):
    _write_run(root / "old" / "b", "2020-01-01T00:00:00+0000")
    _write_run(root / "old" / "c", "2021-01-01T00:00:00+0000")

    runs = orbit_runner.runs(root)

    assert [run.model_dir.name for run in runs] == ["a", "c", "b"]
    assert [run.status for run in runs[1:]] == ["failed", "failed"]
    assert runs[1].reason == "out of luck"
    assert len(repr(runs).splitlines()) == 4
    assert runs._repr_html_().count("<tr>") == 4
    frame = runs.to_pandas()
    assert list(frame.index) == [run.name for run in runs]
    assert frame["accuracy"].iloc[0] == result.best["accuracy"]
    assert frame["trainer.train_epochs"].iloc[0] == 3
    assert repr(runs[:0]) == "no runs"


def _write_run(path: Path, started: str) -> None:
    path.mkdir(parents=True)
    attempt = {"mode": "train", "started": started, "outcome": "RunnerError: out of luck"}
    (path / "run.json").write_text(json.dumps({"attempts": [attempt]}))


def test_directory_without_a_run_is_an_error_that_says_where_one_is(root, result, tmp_path):
    for path, message in (
        (root / "aa", f"model_dir: {root}/aa does not exist"),
        (root, f"model_dir: {root} is no run\norbit_runner.runs(directory) lists the runs"),
    ):
        with pytest.raises(RunnerError) as caught:
            orbit_runner.load(path)
        assert message in str(caught.value)
    with raises("missing-file", "directory"):
        orbit_runner.runs(tmp_path / "nowhere")


def test_runs_are_read_without_tensorflow(result):
    code = (
        "import sys, orbit_runner\n"
        "from orbit_runner import TaskConfig, field, load_config, register_task\n"
        "load_config('digits')\n"
        "run = orbit_runner.load(sys.argv[1])\n"
        "print(repr(run), run.config.name, run.history.plot(), run.report, run.name)\n"
        "print(orbit_runner.runs(sys.argv[1]))\n"
        "assert not {'tensorflow', 'official', 'orbit'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(result.model_dir)], check=True)
