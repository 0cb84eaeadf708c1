"""What a run collects for its report, and that this changes nothing of the run."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.cli.main import main
from orbit_runner.reporting import report_collection as collection
from orbit_runner.reporting.report_collection import unchanged_scope
from orbit_runner.reporting.report_data import (
    EvaluationData,
    ReportData,
    read_data,
)
from orbit_runner.reporting.report_writer import ReportWriter

_EQUAL = ("--train_steps=40", "--trainer.validation_interval=10", "--runtime.intra_op_threads=0")


def _train(name: str, *flags: str) -> Path:
    assert main(["run", *flags, f"--model_dir={name}"]) == 0
    return Path(name)


def _results(run: Path) -> dict[str, Any]:
    """Returns the weights, the digests of all checkpoints, and the records without times."""
    attempt = json.loads((run / "run.json").read_text())["attempts"][-1]
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timed = ("time", "steps_per_second", "tflops_per_second", "mfu")
    return {
        "weights": attempt["weights"],
        "checkpoints": (run / "checkpoints/fingerprints.jsonl").read_text(),
        "records": [
            {k: v for k, v in record.items() if k not in timed and not k.startswith("system/")}
            for record in records
        ],
    }


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("fragment", ["trainer/ema.yaml", "runtime/mirrored_2cpu.yaml"])
def test_weights_and_records_are_the_same_with_a_report(fragment, monkeypatch):
    # Each evaluation is followed by a collection, and each of these may take 20 s.
    monkeypatch.setattr("orbit_runner.reporting.report_writer._PART", 1e9)
    chosen = ["--experiment=digits_mlp", f"--config_file=configs/{fragment}"]

    with_report = _train("a", *chosen, *_EQUAL, "--trainer.report_interval=0.001")
    without = _train("b", *chosen, *_EQUAL, "--trainer.report_interval=0")

    assert _results(with_report) == _results(without)
    data = read_data(with_report)
    assert data.evaluation.step == 40
    (last,) = [r for r in _results(without)["records"] if r["step"] == 40 and "accuracy" in r][-1:]
    counts = data.evaluation.confusion
    correct = sum(count for label, other, count in counts if label == other)
    assert sum(count for *_, count in counts) == 359
    assert correct / 359 == pytest.approx(last["accuracy"])  # So the weights are those evaluated.
    assert len(data.evaluation.pictures) == min(24, 359 - correct)
    assert not (without / "report_data").exists()


@pytest.mark.slow
def test_inputs_are_those_of_the_first_step(here):
    run = _train("a", "--experiment=digits", "--train_steps=2")
    data = read_data(run)
    assert data.inputs.step == 0
    assert len(data.inputs.pictures) == 32
    assert [layer.name for layer in data.inputs.tensors] == ["features", "labels"]
    assert sum(layer.parameters for layer in data.model.layers) == 53_002
    assert data.model.layers[-1].shape == (10,)
    assert data.model.step_flops
    # A resumed run shows the first batch that it trains on.
    assert main(["run", "--experiment=a", "--model_dir=a", "--train_steps=4"]) == 0
    inputs_of_step_2 = read_data(run).inputs
    assert inputs_of_step_2.step == 2
    assert inputs_of_step_2.pictures != data.inputs.pictures


@pytest.mark.slow
def test_translation_shows_sentences(here, monkeypatch):
    from tests.support.translations import translation_config, write_set

    monkeypatch.setenv("XDG_CACHE_HOME", str(here))
    from orbit_runner.config.serialize import to_yaml

    config = translation_config(write_set(here / "set"))
    (here / "a.yaml").write_text(to_yaml(config))

    run = _train("a", "--experiment=a.yaml", "--train_steps=2")

    data = read_data(run)
    assert data.evaluation.head == ("source", "reference", "translation")
    assert len(data.evaluation.rows) == 10
    assert {name for name, _ in data.inputs.sentences} >= {"features.inputs", "features.targets"}
    assert any(row.shape for row in data.model.layers)


def test_failure_is_one_warning_and_training_continues(tmp_path, monkeypatch, caplog):
    def fail(*args: Any) -> None:
        raise ValueError("the\nmodel")

    collector = ReportWriter(tmp_path, 1e12)
    for name in ("collect_inputs", "collect_evaluation"):
        monkeypatch.setattr(collection, name, fail)
    run = _Run(tmp_path)
    with caplog.at_level(logging.INFO, logger="orbit_runner"):
        collector.on_run_begin(run)
        collector.on_evaluate(run, {})
        collector.on_train_end(run)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == "warning: the report has no examples of this run: the"
    assert read_data(tmp_path) == ReportData()


class _Run:
    """The attributes of a run that decide when to collect."""

    def __init__(self, path: Path) -> None:
        self.model_dir, self.adapter, self.stops = path, object(), self
        self.step, self.train_steps, self.reason = 10, 10, ""


class _Clock:
    """A clock that only the test and the collection move forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost: float) -> None:
        self.now, self.cost, self.seconds = 1000.0, cost, list[float]()
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr(collection, "collect_evaluation", self._collect)

    def _collect(self, run: Any, seconds: float) -> EvaluationData:
        self.now += self.cost
        self.seconds.append(seconds)
        return EvaluationData(step=run.step)


def test_examples_take_at_most_a_200th_of_the_time(tmp_path, monkeypatch):
    clock, collector, run = _Clock(monkeypatch, 2.0), ReportWriter(tmp_path, 1e12), _Run(tmp_path)
    run.step = 1
    collector.on_run_begin(run)
    # The time since the previous event, and how often examples have been collected by then.
    for passed, expected in ((99.0, 0), (1.0, 1), (399.0, 1), (1.0, 2), (3600.0, 3), (9.0, 3)):
        clock.now += passed
        collector.on_evaluate(run, {})
        assert len(clock.seconds) == expected
    assert clock.seconds == [0.5, pytest.approx(502 / 200), 20.0]
    run.step = run.train_steps  # The last evaluation.
    collector.on_evaluate(run, {})
    assert len(clock.seconds) == 4
    assert read_data(tmp_path).evaluation == EvaluationData(step=10)


def test_early_stop_makes_an_evaluation_the_last_one(tmp_path, monkeypatch):
    clock, collector, run = _Clock(monkeypatch, 0.1), ReportWriter(tmp_path, 1e12), _Run(tmp_path)
    run.step, run.reason = 1, "no better"
    collector.on_run_begin(run)
    collector.on_evaluate(run, {})
    assert len(clock.seconds) == 1


def test_removed_run_directory_is_not_created_again(tmp_path, monkeypatch):
    _Clock(monkeypatch, 0.1)
    path = tmp_path / "gone"
    collector = ReportWriter(path, 1e12)
    collector.on_run_begin(_Run(path))
    collector.on_evaluate(_Run(path), {})
    assert not path.exists()


class _Counting(tf_keras.layers.Layer):
    """A layer with a state that each call changes, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.add_weight(name="calls", shape=[], trainable=False)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        self.calls.assign_add(1.0)
        self.add_loss(tf.reduce_sum(inputs) * tf.random.uniform([]))
        return inputs * float(np.random.default_rng().random())


def test_state_losses_and_generators_are_restored():
    inputs = tf_keras.Input([2])
    layer = _Counting()
    model = tf_keras.Model(inputs, layer(inputs))
    layer.calls.assign(3.0)
    tf.random.set_seed(5)
    expected = tf.random.uniform([]).numpy()
    tf.random.set_seed(5)

    with unchanged_scope(model):
        model(tf.ones([1, 2]), training=False)
        np.random.random()
        assert float(layer.calls) == 4.0
        assert len(layer._eager_losses) == 1

    assert float(layer.calls) == 3.0
    assert layer._eager_losses == []
    assert tf.random.uniform([]).numpy() == expected
