"""`runner help SETTING`: a setting, its type, default, limits and value."""

from __future__ import annotations

import pytest

from orbit_runner.cli.main import main

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
def test_a_setting_is_found_by_path_and_by_name(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out == TRAIN_STEPS


def test_ambiguous_name_lists_all_matching_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "global_batch_size"]) == 0
    out = capsys.readouterr().out
    assert "task.train_data.global_batch_size\n" in out
    assert "task.validation_data.global_batch_size\n" in out


def test_explaining_a_section_lists_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "trainer.early_stopping"]) == 0
    out = capsys.readouterr().out
    assert "\n    metric" in out
    assert main(["help", "trainer"]) == 0
    out = capsys.readouterr().out
    assert "\n    optimizer_config. " in out
    assert "\n    train_steps " in out


def test_experiment_flag_adds_value_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["task.model.dropout_rate", "seed", "--experiment=digits"]
    assert main(["help", *words, "--task.model.dropout_rate=0.25"]) == 0
    out = capsys.readouterr().out
    # The experiment has one network, so only its setting is described.
    assert out.count("task.model.dropout_rate\n") == 1
    assert "  value      0.25 (--task.model.dropout_rate)\n" in out
    assert "  value      17 (experiments/digits.yaml:" in out


def test_indexed_list_item_shows_the_general_item_description(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["help", "callbacks[0].class_name"]) == 0
    assert capsys.readouterr().out.startswith("callbacks[].class_name\n")
