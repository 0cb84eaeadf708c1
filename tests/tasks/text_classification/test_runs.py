"""Runs of text classification: exact after a stop, and on workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.tasks.tabular.preprocessing import PREPROCESSING_FILE
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


def test_synthetic_classes_can_be_learned(tmp_path: Path) -> None:
    changes = {
        f"task__{section}__source": "synthetic" for section in ("train_data", "validation_data")
    }
    config = text_config("data", task__text__max_length=12, trainer__train_steps=150, **changes)
    _, logs = run(config, tmp_path)
    assert logs["accuracy"] > 0.8
