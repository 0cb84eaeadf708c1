"""What every task promises: its predictions, evaluations and exports agree; padding has no effect.

The cases come from the registry of the tasks. See `tests/support/samples.py` for their settings.
"""

import contextlib
import importlib.util
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.checkpoint.latest_checkpoint import PLAIN, choose_checkpoint
from orbit_runner.cli.main import main
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.task_data import task_data
from orbit_runner.config.serialize import to_yaml
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.registration import Entry
from orbit_runner.registry import TASKS
from orbit_runner.serving.evaluation import CheckpointEvaluation
from orbit_runner.serving.export_directory import find_export
from orbit_runner.serving.formats.base import network_formats
from orbit_runner.serving.formats.saved_model import load_signatures
from orbit_runner.serving.loader import make_task
from orbit_runner.tasks.adapter import build_task
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.base import EXAMPLES, drop_padding, split_counts
from orbit_runner.train.evaluator import value_of
from orbit_runner.train.inputs.distribute import own_batches
from tests.support.exported import ask_elsewhere
from tests.support.problems import output_of
from tests.support.samples import (
    SIZE,
    TASK_SAMPLES,
    Member,
    config_of_section,
    sample_config,
    source_registry,
    write_sample,
)
from tests.support.toy import make_strategy, run

# Settings of the trained runs. The columns that split the rows would need a larger range than int8
# has.
_RUN_SETTINGS = {
    "tabular": {"features__exclude": ["part", "person"]},
}
_TASKS = [task for task in TASKS.registered() if str(task.target).startswith("orbit_runner.")]
_each_task = pytest.mark.parametrize("task", _TASKS, ids=lambda task: task.name)


class Trained(NamedTuple):
    """A run of a task, and what `runner predict` says of the examples that it was evaluated on."""

    member: Member
    section: dict[str, Any]
    run: Path
    config: ExperimentConfig
    metrics: Mapping[str, float]
    items: Sequence[str]

    def changed(self, **changes):
        """Returns the config of the run with other settings of the task."""
        settings = _RUN_SETTINGS.get(self.member.task.name, {}) | changes
        return config_of_section(self.member, self.section, **settings)

    def evaluation(self, config, strategy="one_device"):
        """Restores the last checkpoint, to be evaluated under another config."""
        chosen = make_strategy(strategy)
        with chosen.scope():
            task = build_task(config, str(self.run))
        choice = choose_checkpoint(self.run, None, "", print)
        return CheckpointEvaluation.restore(config, task, chosen, self.run, choice, PLAIN)


Trainer = Callable[[Entry], Trained]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a function that trains a task, once."""
    runs = {}

    def train(task):
        if task.name not in runs:
            runs[task.name] = _train(task, tmp_path_factory.mktemp(task.name))
        return runs[task.name]

    return train


def sampled_member(task):
    """Returns a task with the data source of its sample."""
    registry = source_registry(task)
    return Member(task, registry.get(TASK_SAMPLES[task.name].source))


def _train(task, folder):
    sample = TASK_SAMPLES[task.name]
    member = sampled_member(task)
    section = write_sample(member, folder / "data")
    settings = _RUN_SETTINGS.get(task.name, {})
    config = config_of_section(member, section, validation_data__global_batch_size=16, **settings)
    # Files of examples that are there when those of the run are gone.
    items = folder / "items"
    shutil.copytree(folder / "data", items)
    names = sample.items(items) if sample.items else [*map(str, items.iterdir())]
    _, metrics = run(config, folder / "run")
    (folder / "run" / "config.yaml").write_text(to_yaml(config))
    with without_data(folder):
        assert main(["export", str(folder / "run"), "--quiet"]) == 0
    return Trained(member, section, folder / "run", config, metrics, names)


@contextlib.contextmanager
def without_data(folder):
    """Renames the directory of the data of a run in a `with` block."""
    (folder / "data").rename(folder / "gone")
    try:
        yield
    finally:
        (folder / "gone").rename(folder / "data")


class RecordedSignature:
    """Calls a signature of an export, and records its inputs and outputs."""

    def __init__(self, function):
        self.function = function
        self.calls = []

    def __call__(self, **inputs):
        outputs = self.function(**inputs)
        values = [
            {name: value.numpy() for name, value in tensors.items()}
            for tensors in (inputs, outputs)
        ]
        self.calls.append((values[0], values[1]))
        return outputs

    def __getattr__(self, name):
        return getattr(self.function, name)


class Export(NamedTuple):
    """An export of a run: its signatures, and the predictor that calls them."""

    task: Any
    signatures: Mapping[str, RecordedSignature]
    predictor: Any

    @classmethod
    def load(cls, trained):
        """Loads the SavedModel of a run."""
        place = find_export(trained.run / "export")
        task = make_task(trained.config, None)
        signatures = {
            name: RecordedSignature(function) for name, function in load_signatures(place).items()
        }
        return cls(task, signatures, task.predictor(signatures))

    def predict(self, items):
        """Returns the predictions for all items, as JSON values."""
        parsed = [*self.predictor.items(items, [])]
        return [answer.data for answer in self.predictor.predict(parsed)]


def assert_close(value, expected, tolerance=1e-5):
    """Compares JSON values; numbers may differ by the tolerance."""
    if isinstance(expected, Mapping):
        assert value.keys() == expected.keys()
        for name in expected:
            assert_close(value[name], expected[name], tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(value) == len(expected)
        for item, expected_item in zip(value, expected, strict=True):
            assert_close(item, expected_item, tolerance)
    elif isinstance(expected, float):
        assert value == pytest.approx(expected, rel=tolerance, abs=tolerance)
    else:
        assert value == expected


@pytest.mark.promise("commands", "an export predicts what its run predicts")
@pytest.mark.sample(1)
@_each_task
def test_run_without_its_data_predicts_like_its_export(task, trained):
    sample = trained(task)
    with without_data(sample.run.parent):
        answers = Export.load(sample).predict(sample.items)
        lines = output_of(["predict", str(sample.run), *sample.items, "--json", "--quiet"])

    assert len(answers) == SIZE
    assert len({json.dumps([*answer.values()][1:]) for answer in answers}) > 3
    assert_close([json.loads(line) for line in lines.splitlines()], answers)


@pytest.mark.sample(1)
@_each_task
def test_prediction_does_not_depend_on_other_items(task, trained):
    export = Export.load(trained(task))
    items = [*export.predictor.items(trained(task).items, [])]
    together = [answer.data for answer in export.predictor.predict(items)]

    for number in (0, 5, len(items) - 1):
        (answer,) = export.predictor.predict([items[number]])
        # Arrays have no other place than their number among all rows of a predictor.
        place = {"row": together[number]["row"]} if task.name == "keras" else {}
        assert_close({**answer.data, **place}, together[number])


def _log_probabilities(answers):
    classes = [
        sorted(answer["predictions"], key=lambda label: label["class"]) for answer in answers
    ]
    return np.log([[label["probability"] for label in labels] for labels in classes])


def _log_shares(answers):
    shares = [[*answer["kind"]["probabilities"].values()] for answer in answers]
    return {"kind": np.log(shares)}


# The outputs of the model that a prediction tells. Those of probabilities are logits, too.
_OUTPUTS = {
    "image_classification": _log_probabilities,
    "tabular": _log_shares,
    "keras": lambda answers: np.array([answer["outputs"] for answer in answers]),
}


class PredictedOutputs:
    """Stands in for the model of an evaluation: its outputs are those of predictions."""

    def __init__(self, model, answer):
        self._model = model
        self._answer = answer

    def __call__(self, features, training=False):
        return self._answer(features)

    def __getattr__(self, name):
        return getattr(self._model, name)


@pytest.mark.sample(1)
@_each_task
def test_metrics_of_the_predictions_are_those_of_the_evaluation(task, trained):
    sample = trained(task)
    export = Export.load(sample)
    evaluation = sample.evaluation(sample.changed(validation_data__global_batch_size=64))
    evaluated = evaluation.adapter.task
    if task.name == "translation":
        # No metric of predictions says as much as the translations themselves.
        evaluation.evaluate()
        report = evaluated.report_examples(evaluation.model, ())
        translations = {
            answer["source"]: answer["translation"] for answer in export.predict(sample.items)
        }
        assert [row[2] for row in report.rows] == [translations[row[0]] for row in report.rows]
        return

    def predict(features):
        if task.name == "recommendation":
            ratings = evaluated.ratings
            users, items = (features[name].numpy() for name in ("user", "item"))
            ids = {"user": ratings.user_ids[users], "item": ratings.item_ids[items]}
            scores = export.signatures["pairs"](**{k: tf.constant(v) for k, v in ids.items()})
            return tf.math.log(scores["score"]) - tf.math.log1p(-scores["score"])
        if task.name not in _OUTPUTS:
            pytest.skip("its predictions do not tell the outputs of the model")
        outputs = _OUTPUTS[task.name](export.predict(sample.items))
        return tf.nest.map_structure(lambda array: tf.constant(array, tf.float32), outputs)

    metrics = evaluated.build_metrics(training=False)
    section = evaluation.section("validation_data")
    (batch,) = own_batches(evaluation.adapter, sample.config.runtime, section)
    rows, count = drop_padding(evaluated, batch)
    model = PredictedOutputs(evaluation.model, predict)
    logs = evaluated.validation_step(rows, model, metrics)

    assert int(count) == sample.metrics["validation_examples"] == SIZE
    values = {metric.name: value_of(metric) for metric in metrics}
    values["validation_loss"] = logs[evaluated.loss]
    assert len(values) > 1
    for name, value in values.items():
        assert float(value) == pytest.approx(float(sample.metrics[name]), rel=1e-4), name


# How batches can differ without an effect: strategy, settings of the task, logical replicas.
_SIZE = "validation_data__global_batch_size"
_LAYOUTS = {
    "a batch for all": ("one_device", {_SIZE: 64}, 0),
    "whole batches": ("one_device", {_SIZE: 8}, 0),
    "replicas without examples": ("mirrored4", {_SIZE: 36}, 0),
    "logical replicas": ("one_device", {_SIZE: 24}, 4),
    "more padding": ("one_device", {}, 0),
}


def _cases_of_layouts():
    """Yields each task with replicas that have only padding, and each layout with one task."""
    for task in _TASKS:
        for name, layout in _LAYOUTS.items():
            if name == "more padding":
                is_case = bool(TASK_SAMPLES[task.name].padding)
            else:
                is_case = name == "replicas without examples" or task == _TASKS[0]
            if is_case:
                yield pytest.param(task, layout, id=f"{task.name}-{name}")


@pytest.mark.sample(1)
@pytest.mark.parametrize(("task", "layout"), [*_cases_of_layouts()])
def test_evaluation_does_not_depend_on_batches(task, layout, trained):
    strategy, changes, logical_replicas = layout
    sample = trained(task)
    padding = {
        name.replace(".", "__"): value for name, value in TASK_SAMPLES[task.name].padding.items()
    }
    config = sample.changed(**(changes or {_SIZE: 16, **padding}))
    runtime = config.runtime.replace(logical_replicas=logical_replicas)

    metrics = sample.evaluation(config.replace(runtime=runtime), strategy).evaluate()

    assert metrics["validation_examples"] == SIZE
    for name, value in metrics.items():
        assert value == pytest.approx(float(sample.metrics[name]), rel=1e-5), name


@pytest.mark.sample(1)
@_each_task
def test_rows_that_fill_up_a_batch_count_for_nothing(task, trained):
    sample = trained(task)
    evaluation = sample.evaluation(sample.config)
    evaluated = evaluation.adapter.task
    section = evaluation.section("validation_data")
    *_, batch = own_batches(evaluation.adapter, sample.config.runtime, section)
    rows, count = drop_padding(evaluated, batch)
    _, counts = split_counts(evaluated, batch)
    padding = tf.where(counts == 0)[:, 0]
    assert 0 < int(count) < len(counts)

    def fill(part, number):
        """Replaces padding by an example."""
        values = tf.tile(part[number : number + 1], [len(padding), *[1] * (part.shape.rank - 1)])
        return tf.tensor_scatter_nd_update(part, padding[:, tf.newaxis], values)

    results = []
    *data, weights = batch
    filled = [
        (*tf.nest.map_structure(lambda part, n=number: fill(part, n), tuple(data)), weights)
        for number in (0, 1)
    ]
    # A TPU gets batches with their padding.
    for inputs in (rows, batch, *filled):
        metrics = evaluated.build_metrics(training=False)
        logs = evaluated.validation_step(inputs, evaluation.model, metrics)
        values = {metric.name: float(value_of(metric)) for metric in metrics}
        results.append({**values, **{n: float(logs[n]) for n in (evaluated.loss, EXAMPLES)}})
    for values in results[1:]:
        assert_close(values, results[0])


@pytest.mark.slow
def test_exports_need_nothing_but_tensorflow(trained, tmp_path):
    questions = []
    expected = []
    for task in _TASKS:
        sample = trained(task)
        export = Export.load(sample)
        export.predict(sample.items)
        place = find_export(sample.run / "export")
        for name, signature in export.signatures.items():
            for inputs, outputs in signature.calls:
                questions.append((place, name, inputs))
                expected.append(outputs)
    answers = ask_elsewhere(questions, tmp_path)

    assert len(answers) >= len(_TASKS)
    for answer, outputs in zip(answers, expected, strict=True):
        values = {name: output.tolist() for name, output in outputs.items()}
        assert_close({name: output.tolist() for name, output in answer.items()}, values)


_NETWORK_FORMATS = [
    name
    for name, kind in network_formats().items()
    if all(importlib.util.find_spec(package) for package in kind.packages)
]


@pytest.mark.slow
@_each_task
def test_network_is_exported_in_other_formats_or_refused_with_the_reason(task, trained, capsys):
    sample = trained(task)
    for name in _NETWORK_FORMATS:
        kind = network_formats()[name]
        capsys.readouterr()
        # After so few steps, only the outputs say whether int8 is good.
        flags = [f"--format={name}", "--tolerance=0.3", "--json", "--quiet"]
        code = main(["export", str(sample.run), *flags])
        printed = capsys.readouterr()
        if code == 2:
            assert "\nuse --format=saved_model" in printed.err
            assert kind.loads_keras_model or "only a SavedModel can contain both" in printed.err
            assert not (sample.run / "export" / f"8-{name}").exists()
            continue
        assert code == 0, printed.err
        record = json.loads(printed.out)
        assert record["check"]["relative"] <= kind.tolerance


@_each_task
def test_learned_assets_stay_when_the_data_is_gone(task, tmp_path):
    with source_cache_scope():
        config = sample_config(sampled_member(task), tmp_path / "data").task
        data = task_data(config)
        assert [*data.problems()] == []
        assert {"train_data", "validation_data"} <= {*(data.files() or {})}
        first = Assets(tmp_path / "run")
        first.discard()
        learned = data.learn(first)
        first.write()
    assets = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    written = {path.name: path.read_bytes() for path in assets}
    shutil.rmtree(tmp_path / "data")

    with source_cache_scope():
        later = Assets(tmp_path / "run")
        relearned = task_data(config).learn(later)

    assert type(relearned) is type(learned)
    assert written
    for name, content in written.items():
        assert later.get(name, lambda: b"computed again") == content
