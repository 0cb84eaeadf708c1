"""Schedules that follow the run (`auto`), and schedules that end before it."""

from __future__ import annotations

from typing import Any

import pytest

from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.resolve import load_config
from orbit_runner.config.schedule_length import (
    LENGTHS,
    PATH,
    describe_early_end,
    follow_run,
    follow_same_run,
    follows_run,
    schedule_steps,
    weight_decay,
)
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import to_yaml
from orbit_runner.run_directory.config import check_same_settings
from tests.support.problems import raises

_RATE = {
    "cosine": {"initial_learning_rate": 0.1},
    "polynomial": {"initial_learning_rate": 0.1, "end_learning_rate": 0.01},
    "exponential": {"initial_learning_rate": 0.1, "decay_rate": 0.5},
    "power_linear": {"initial_learning_rate": 0.1},
    "stepwise": {"boundaries": [10, 20], "values": [0.1, 0.01, 0.0]},
    "constant": {"learning_rate": 0.0},
}


def _config(kind: str, trainer: dict[str, Any] | None = None, **block: Any) -> ExperimentConfig:
    values = {"trainer.train_steps": 60} if trainer is None else trainer
    return load_config(
        "digits", overrides={PATH: {"type": kind, kind: {**_RATE[kind], **block}}, **values}
    )


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("offset", [0, 5])
def test_a_schedule_with_the_length_auto_ends_with_the_run(kind, offset):
    config = _config(kind, **{LENGTHS[kind]: "auto", "offset": offset})
    steps = 60 - offset

    assert follows_run(config)
    assert follow_run(config, 60) == _config(kind, **{LENGTHS[kind]: steps, "offset": offset})
    assert describe_early_end(follow_run(config, 60), 60) == ""


def test_a_schedule_with_a_number_of_steps_does_not_follow_the_run():
    config = _config("cosine", decay_steps=7)

    assert follow_run(config, 60) is config


def test_a_run_of_unknown_length_has_some_schedule():
    assert schedule_steps(follow_run(_config("cosine", decay_steps="auto"), 0)) == 1


def _with_auto_weight_decay() -> ExperimentConfig:
    block = {"type": "adamw", "adamw": {"weight_decay_rate": "auto"}}
    return load_config("digits", overrides={"trainer.optimizer_config.optimizer": block})


@pytest.mark.parametrize(
    ("examples", "rate"), [(20, 10.0), (250, 5.0), (2500, 0.5), (0, 0.0), (None, "auto")]
)
def test_an_automatic_weight_decay_is_stronger_for_fewer_examples(examples, rate):
    config = _with_auto_weight_decay()

    assert follows_run(config)
    assert weight_decay(follow_run(config, 60, examples)) == rate


def test_an_automatic_weight_decay_of_unknown_data_is_not_taken_for_none():
    config = _with_auto_weight_decay()
    without = follow_run(config, 60, 0)

    assert weight_decay(without) == 0.0
    assert config_fingerprint(follow_run(config, 60)) != config_fingerprint(without)


def test_a_run_whose_config_has_an_automatic_weight_decay_is_not_resumed_without(tmp_path):
    config = _with_auto_weight_decay()
    trainer = config.trainer.replace(train_steps=60, train_epochs=0.0)
    config = config.replace(trainer=trainer)
    (tmp_path / "config.yaml").write_text(to_yaml(config))

    check_same_settings(tmp_path, config)
    with raises("other-config"):
        check_same_settings(tmp_path, follow_run(config, 60, 0))


def test_a_resume_has_the_same_automatic_weight_decay():
    config = _with_auto_weight_decay()

    assert weight_decay(follow_same_run(config, follow_run(config, 60, 250))) == 5.0


@pytest.mark.parametrize(
    ("kind", "block", "text"),
    [
        ("cosine", {"decay_steps": 50}, "is 0 after step 50 of 60"),
        ("cosine", {"decay_steps": 50, "alpha": 0.5}, "stays at 0.05 after step 50 of 60"),
        ("cosine", {"decay_steps": 50, "offset": 9}, "is 0 after step 59 of 60"),
        ("cosine", {"decay_steps": 50, "offset": 10}, ""),
        ("cosine", {"decay_steps": 60}, ""),
        ("cosine", {"decay_steps": 900}, ""),
        ("polynomial", {"decay_steps": 50}, "stays at 0.01 after step 50 of 60"),
        ("polynomial", {"decay_steps": 50, "end_learning_rate": 0.0}, "is 0 after step 50 of 60"),
        ("polynomial", {"decay_steps": 50, "cycle": True}, ""),
        ("power_linear", {"total_decay_steps": 50}, "is 0 after step 50 of 60"),
        ("exponential", {"decay_steps": 50}, ""),
        ("stepwise", {}, "is 0 after step 21 of 60"),
        ("stepwise", {"values": [0.1, 0.01, 0.001]}, ""),
        ("stepwise", {"boundaries": [10, 70]}, ""),
        ("constant", {}, "is 0 in all 60 steps"),
        ("constant", {"learning_rate": 0.1}, ""),
    ],
)
def test_a_schedule_that_ends_before_the_run_is_described(kind, block, text):
    description = describe_early_end(_config(kind, **block), 60)

    assert description.startswith(f"the learning rate {text}") if text else description == ""
    if text and kind in LENGTHS:
        assert description.endswith(
            f"because {PATH}.{kind}.{LENGTHS[kind]} is 50; set it to auto to decay until the end"
        )


@pytest.mark.parametrize("length", ["train_steps", "train_epochs"])
def test_a_resume_with_the_same_length_has_the_same_schedule(length):
    trainer = {f"trainer.{length}": 40}
    before = _config("cosine", trainer, decay_steps=40 if length == "train_steps" else 899)
    auto = _config("cosine", trainer, decay_steps="auto")
    longer = _config("cosine", {f"trainer.{length}": 42}, decay_steps="auto")

    assert follow_same_run(auto, before) == before
    assert schedule_steps(follow_same_run(longer, before)) not in (40, 899)


@pytest.mark.parametrize(
    "name",
    [
        *("breast_cancer", "diabetes", "digits", "fashion_mnist", "mnist", "text_language"),
        *("transformer_multi30k", "vit_base_imagenet"),
    ],
)
def test_our_experiments_decay_until_the_end_of_the_run(name):
    assert follows_run(load_config(name))
