"""Runs of text classification: exact after a stop, on replicas and on workers; and their report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbit_runner.config.serialize import to_yaml
from orbit_runner.tasks.tabular.preprocessing import PREPROCESSING_FILE
from orbit_runner.tasks.text_classification.task import TextClassificationTask
from tests.clusters.members import alone, cluster, content, finish
from tests.support.texts import TRANSFORMER, text_config
from tests.support.toy import run, run_and_resume

_MODELS: dict[str, dict[str, Any]] = {
    "bag_of_words": {"task__model__hidden_units": [8]},
    "transformer": TRANSFORMER,
    "subwords": {
        "task__text__tokenizer": "subwords",
        "task__text__vocab_size": 40,
        "task__text__max_length": 12,
    },
}


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("model", _MODELS)
def test_stopped_and_resumed_run_has_the_weights_of_an_uninterrupted_one(
    folder: Path, tmp_path: Path, strategy: str, model: str
) -> None:
    config = text_config(folder, **_MODELS[model])
    runs = run_and_resume(config, tmp_path, strategy)
    assert runs.notes.reasons == []
    assert runs.resumed_logs["validation_loss"] == runs.logs["validation_loss"]
    records = [
        json.loads((tmp_path / name / "checkpoints" / "ckpt-24.json").read_text())
        for name in ("whole", "parts")
    ]
    assert records[0]["state"] == records[1]["state"]
    assert (tmp_path / "whole" / "assets" / PREPROCESSING_FILE).read_bytes() == (
        tmp_path / "parts" / "assets" / PREPROCESSING_FILE
    ).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bag_of_words", "transformer"])
def test_replicas_see_the_texts_of_one_device(folder: Path, tmp_path: Path, model: str) -> None:
    config = text_config(folder, task__model__dropout_rate=0.0, **_MODELS[model])
    single, _ = run(config, tmp_path / "one")
    shared, _ = run(config, tmp_path / "more", strategy="mirrored2")
    for one, other in zip(single.get_weights(), shared.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_two_workers_have_the_weights_of_two_replicas(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "texts.yaml"
    path.write_text(to_yaml(text_config(folder)), encoding="utf-8")
    flags = (f"--experiment={path}", "--runtime.num_gpus=0", "--train_steps=10")
    workers = "--runtime.distribution_strategy=multi_worker_mirrored"
    with cluster(tmp_path / "workers", *flags, workers, worker=2) as members:
        assert finish(members) == {"worker0": 0, "worker1": 0}, members["worker0"].text
    replicas = ("--runtime.distribution_strategy=mirrored", "--runtime.num_virtual_devices=2")
    alone(tmp_path / "replicas", *flags, *replicas)

    assert content(tmp_path / "workers") == content(tmp_path / "replicas")
    kept = [
        json.loads((tmp_path / name / "run" / "assets" / PREPROCESSING_FILE).read_text())
        for name in ("workers", "replicas")
    ]
    assert kept[0] == kept[1]


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model after a few steps, the logs of its evaluation, and its task."""
    config = text_config(
        folder, task__metrics=["auc"], task__text__max_length=1, trainer__train_steps=6,
        trainer__validation_interval=6,
    )  # fmt: skip
    model, logs = run(config, tmp_path_factory.mktemp("run"))
    return config, model, logs


@pytest.mark.slow
def test_evaluation_has_the_metrics_of_the_config(trained: Any) -> None:
    _, _, logs = trained
    assert logs["validation_examples"] == 18
    assert logs["accuracy"] > 0.6
    assert 0.5 < logs["auc"] <= 1


@pytest.fixture
def wrong(trained: Any) -> Any:
    """The model of the trained run, which calls all texts German."""
    biases = trained[1].variables[-1]
    before = biases.numpy()
    biases.assign([-50.0, 50.0])
    yield trained[1]
    biases.assign(before)


@pytest.mark.slow
def test_report_shows_confusion_matrix_and_texts_of_mistakes(trained: Any, wrong: Any) -> None:
    config = trained[0]
    task = TextClassificationTask(config.task)
    found = task.report_examples(wrong, task.build_inputs(config.task.validation_data))

    assert found.confusion == {(0, 1): 9, (1, 1): 9}
    assert found.classes == ("english", "german")
    assert found.note == "9 correct predictions for all 18 examples of the validation data"
    part = task.part(config.task.validation_data)
    for place, label, predicted, probability, _, values in found.rows[:9]:
        assert (label, predicted, probability) == ("english", "german", "1.0000")
        row = int(place.rpartition(" ")[2]) - 1
        assert part.row_location(row) == place
        assert values == f"text {part.column('text').text(row)}"


def test_synthetic_classes_can_be_learned(tmp_path: Path) -> None:
    changes = {
        f"task__{section}__source": "synthetic" for section in ("train_data", "validation_data")
    }
    config = text_config("data", task__text__max_length=12, trainer__train_steps=150, **changes)
    _, logs = run(config, tmp_path)
    assert logs["accuracy"] > 0.8
