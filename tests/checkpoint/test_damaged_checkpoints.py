"""Checkpoints that are damaged or do not fit, and what is rejected."""

from pathlib import Path

import pytest
import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import CheckpointContent
from tests.support.damage import DATA, change_record, flip
from tests.support.digits import digits_config
from tests.support.problems import raises
from tests.support.toy import Notes, make_strategy, run, session_of, toy_config


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "suffix"), [(flip, DATA), (Path.unlink, "index")])
def test_evaluation_skips_a_damaged_or_incomplete_checkpoint_without_changing_the_directory(
    spoil, suffix, tmp_path
):
    run(toy_config(), tmp_path)
    spoil(tmp_path / "checkpoints" / f"ckpt-20.{suffix}")
    before = sorted((tmp_path / "checkpoints").rglob("*"))
    notes = Notes()
    run(toy_config(), tmp_path, "eval", notes=notes)
    assert [step for step, _ in notes.evaluations] == [15]
    assert any("damaged" in note for note in notes.notes) is (suffix == DATA)
    assert sorted((tmp_path / "checkpoints").rglob("*")) == before


def test_checkpoint_whose_weights_do_not_match_its_record_is_rejected(tmp_path):
    run(toy_config(trainer__train_steps=5), tmp_path)
    path = tmp_path / "checkpoints" / "ckpt-5.json"
    weights = CheckpointContent(path.with_suffix("")).summary().weights
    assert change_record(path, weights="0" * 64)["weights"] == weights
    with raises("damaged-checkpoint"):
        run(toy_config(), tmp_path)


_NEW_ADAM = {"trainer__optimizer_config__optimizer__type": "adam_experimental"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "now", "path", "reason"),
    [
        ({}, {"task__model__hidden_units": [8]}, "", "restore variable with shape"),
        (
            {},
            {"trainer__optimizer_config__ema__average_decay": 0.9},
            "",
            "dense1/kernel/average: not in the checkpoint",
        ),
        ({}, _NEW_ADAM, "trainer.optimizer_config.optimizer", ", but this experiment uses Adam"),
        (
            {
                "trainer__optimizer_config__optimizer__type": "sgd",
                "trainer__optimizer_config__optimizer__sgd__momentum": 0.9,
            },
            {"trainer__optimizer_config__optimizer__type": "sgd"},
            "",
            "dense1/kernel/momentum: only in the checkpoint",
        ),
    ],
)
def test_mismatch_error_names_the_variables_that_do_not_fit(before, now, path, reason, tmp_path):
    run(digits_config(trainer__train_steps=2, **before), tmp_path, "train")
    with raises("checkpoint-mismatch", path) as caught:
        run(digits_config(trainer__train_steps=4, **now), tmp_path, "train")
    assert reason in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adam_experimental", "sgd"])
def test_resumed_run_takes_the_learning_rate_from_the_config(kind, tmp_path):
    optimizer = {"trainer__optimizer_config__optimizer__type": kind}
    rate = "trainer__optimizer_config__learning_rate__constant__learning_rate"
    run(digits_config(trainer__train_steps=2, **optimizer), tmp_path, "train")
    config = digits_config(**optimizer, **{rate: 0.5})
    session = session_of(config, tmp_path, make_strategy("one_device"), resume="override")
    session.restore_or_initialize()
    assert session.step == 2
    assert float(tf.convert_to_tensor(session.state.optimizer.learning_rate)) == 0.5
