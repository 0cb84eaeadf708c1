"""Runs that leave out training examples."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.step.examples import TrainingOrder
from tests.support.digits import digits_config
from tests.support.tfrecords import write_set as write_records
from tests.support.toy import run
from tests.support.translations import translation_config
from tests.support.translations import write_set as write_sentences

# The first steps are trained with all examples; the excluded one is first used in a later step.
BEFORE, STEPS = 4, 8


def _digits(folder: Path) -> ExperimentConfig:
    return digits_config(task__train_data__augment="crop", task__model__dropout_rate=0.2)


def _records(folder: Path) -> ExperimentConfig:
    folder.mkdir()
    write_records(folder, classes=10)
    return digits_config(
        task__train_data__source="tfrecord",
        task__train_data__data_dir=str(folder),
        task__train_data__input_path="train-*",
        task__train_data__global_batch_size=12,
        task__train_data__shuffle_buffer_size=30,
        task__model__num_classes=10,
    )


def _tokens(folder: Path) -> ExperimentConfig:
    return translation_config(write_sentences(folder))


def _weights(config: ExperimentConfig, folder: Path, steps: int) -> str:
    trainer = dataclasses.replace(
        config.trainer, train_steps=steps, checkpoint_interval=BEFORE, validation_interval=STEPS
    )
    # The checkpoint to continue was made without the exclusion.
    model, _ = run(config.replace(trainer=trainer), folder, "train", resume="override")
    return weights_fingerprint(model)


def _excluding(config: ExperimentConfig, *ids: int) -> ExperimentConfig:
    data = config.task.train_data.replace(exclude=ids)
    return config.replace(task=config.task.replace(train_data=data))


@pytest.mark.slow
@pytest.mark.parametrize("make", [_digits, _tokens, _records])
def test_exclude_of_a_later_example_continues_an_earlier_checkpoint(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = make(tmp_path / "set")
    rows = TrainingOrder(config, None).step(BEFORE + 2).chosen
    example = next(row["example"] for row in rows if row["example"] is not None)
    (first, *_) = TrainingOrder(config, None).occurrences(example, STEPS)
    assert first["step"] == BEFORE + 2
    _weights(config, tmp_path / "whole", BEFORE)
    shutil.copytree(tmp_path / "whole", tmp_path / "branch")
    excluding = _excluding(config, example)

    from_checkpoint = _weights(excluding, tmp_path / "branch", STEPS)

    assert from_checkpoint == _weights(excluding, tmp_path / "scratch", STEPS)
    assert from_checkpoint != _weights(config, tmp_path / "whole", STEPS)


@pytest.mark.slow
def test_resume_of_a_run_that_excludes_examples(tmp_path: Path) -> None:
    config = _excluding(_digits(tmp_path), *range(0, 1400, 2))
    interrupted = tmp_path / "interrupted"
    _weights(config, interrupted, BEFORE)

    resumed = _weights(config, interrupted, STEPS)

    assert resumed == _weights(config, tmp_path / "unbroken", STEPS)
