"""The description of settings, from their declarations."""

from __future__ import annotations

import pytest

from orbit_runner.config.describe import Setting, describe_settings
from orbit_runner.config.parsing.search_path import experiment_files
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import flat_settings


def named(path: str) -> list[Setting]:
    return [setting for setting in describe_settings(ExperimentConfig()) if setting.path == path]


def test_every_setting_of_an_experiment_is_described():
    known = {setting.path for setting in describe_settings(ExperimentConfig())}
    for experiment in experiment_files():
        # The keys of free mappings, such as the arguments of callbacks, are not settings.
        missing = [
            path
            for path in flat_settings(resolve(Request(experiment=experiment)).config)
            if path not in known and not any(path.startswith(f"{setting}.") for setting in known)
        ]
        assert missing == [], experiment


def test_every_setting_has_a_help_text_and_a_type():
    settings = describe_settings(ExperimentConfig())
    assert [setting.path for setting in settings if not (setting.help and setting.type)] == []


def test_setting_shared_by_all_tasks_is_described_once():
    (setting,) = named("task.init_checkpoint")
    assert setting.choices == {}
    (steps,) = named("trainer.train_steps")
    assert (steps.type, steps.default, steps.allowed) == ("an integer", 0, "at least 0")
    assert steps.remark == "alternative to trainer.train_epochs"


def test_setting_of_one_model_names_that_model():
    (setting,) = named("task.model.se_ratio")
    assert setting.choices == {
        "task.name": ("image_classification",),
        "task.model.name": ("efficientnet",),
    }


def test_settings_with_equal_declarations_are_described_together():
    depths = {
        setting.choices["task.model.name"]: setting.allowed for setting in named("task.model.depth")
    }
    assert depths == {("resnet",): "18, 34, 50, 101, 152, 200", ("resnet_cifar",): "at most 2,000"}
    (epsilon,) = (
        setting
        for setting in named("task.model.batch_norm_epsilon")
        if setting.default == pytest.approx(1e-5)
    )
    assert epsilon.choices["task.model.name"] == ("resnet", "resnet_cifar")


def test_choices_limits_and_lists_are_described():
    (strategy,) = named("runtime.distribution_strategy")
    assert strategy.allowed.startswith("off, one_device, mirrored, ")
    (kind,) = named("trainer.optimizer_config.learning_rate.type")
    assert "cosine" in kind.allowed.split(", ")
    (name,) = named("callbacks[].class_name")
    assert name.type == "a string"
    (section,) = named("trainer")
    assert (section.is_section, section.type) == (True, "a section")


def test_setting_with_one_allowed_value_explains_why():
    (setting,) = (s for s in named("task.train_data.mixup_and_cutmix") if s.remark)
    assert setting.remark.startswith("only the default is accepted: ")
