"""`runner help SETTING`: a setting, its type, default, limits and value."""

from __future__ import annotations

import pytest

from tests.support.problems import output_of

TRAIN_STEPS = """\
trainer.train_steps
  number of training steps
  type       an integer
  default    0
  allowed    at least 0
  note       alternative to trainer.train_epochs
  set by     --trainer.train_steps=VALUE, --train_steps=VALUE
"""


@pytest.mark.parametrize(
    "words",
    [
        ["help", "trainer.train_steps"],
        ["help", "train_steps"],
        ["help", "trainer.train_steps=7"],
    ],
)
def test_a_setting_is_found_by_path_and_by_name(words):
    assert output_of(words) == TRAIN_STEPS


def test_ambiguous_name_lists_all_matching_settings():
    out = output_of(["help", "global_batch_size"])
    assert "task.train_data.global_batch_size\n" in out
    assert "task.validation_data.global_batch_size\n" in out


def test_explaining_a_section_lists_its_settings():
    out = output_of(["help", "trainer.early_stopping"])
    assert "\n    metric" in out
    out = output_of(["help", "trainer"])
    assert "\n    optimizer_config. " in out
    assert "\n    train_steps " in out


def test_experiment_flag_adds_value_and_origin():
    words = ["task.model.dropout_rate", "seed", "--experiment=digits"]
    out = output_of(["help", *words, "--task.model.dropout_rate=0.25"])
    # The experiment has one network, so only its setting is described.
    assert out.count("task.model.dropout_rate\n") == 1
    assert "  value      0.25 (--task.model.dropout_rate)\n" in out
    assert "  value      17 (experiments/digits.yaml:" in out


def test_indexed_list_item_shows_the_general_item_description():
    assert output_of(["help", "callbacks[0].class_name"]).startswith("callbacks[].class_name\n")
