"""Settings that are discarded because a higher layer chooses another class are named in a note."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from tests.support import problems

_OPTIMIZER = "trainer.optimizer_config"


def _notes(experiment: str, *overrides: str) -> tuple[str, ...]:
    return resolve(Request(experiment=experiment, params_overrides=overrides)).discarded


def test_another_network_names_the_settings_of_the_one_before() -> None:
    (note,) = _notes("digits", "task.model.name=mlp")

    assert note == (
        "note: task.model.name is 'mlp' (--params_override[0]); settings for the one before are "
        "not used: filters=[32, 64], kernel_size=3, dense_units=128, dropout_rate=0.4"
    )


_TRAINER = """
trainer:
  train_steps: 5
  optimizer_config:
    optimizer: {type: sgd}
    learning_rate: {type: constant, constant: {learning_rate: 0.1}}
"""
_ARRAYS = """
task:
  name: keras
  model: {build: "my_nets:build"}
  loss: mse
  validation_split: 0.5
  train_data:
    {source: arrays, function: "m:load", arguments: {size: 5}, split: train, global_batch_size: 8}
  validation_data: {global_batch_size: 8}
"""
_IMAGES = """
task:
  name: image_classification
  model: {name: mlp}
  train_data: {source: image_csv, labels_file: a, data_dir: a, global_batch_size: 8}
  validation_data: {source: image_csv, labels_file: a, global_batch_size: 8}
"""


def _derive(directory: Path, base: str, sections: str) -> ResolvedConfig:
    (directory / "base.yaml").write_text(base + _TRAINER)
    derived = directory / "derived.yaml"
    derived.write_text(f"base: base.yaml\ntask:\n{sections}")
    return resolve(Request(experiment=str(derived)))


def test_another_source_drops_the_settings_that_only_the_one_before_reads(tmp_path: Path) -> None:
    resolved = _derive(tmp_path, _ARRAYS, "  outputs: y\n  train_data: {source: csv, data_dir: a}")

    data = resolved.config.task.train_data
    assert (data.function, data.arguments, data.split) == ("", {}, "train")
    assert "task.train_data.function" not in resolved.origins
    (note,) = resolved.discarded
    assert note.startswith("note: task.train_data.source is 'csv' (")
    assert note.endswith("not used: function='m:load', arguments.size=5")


def test_another_source_drops_what_it_reads_from_another_setting(tmp_path: Path) -> None:
    sections = "".join(
        f"  {section}: {{source: tfds, tfds_name: mnist}}\n"
        for section in ("train_data", "validation_data")
    )
    resolved = _derive(tmp_path, _IMAGES, sections)

    assert resolved.config.task.train_data.data_dir == ""
    assert [note.partition("not used: ")[2] for note in resolved.discarded] == [
        "labels_file='a', data_dir='a'",
        "labels_file='a'",
    ]


def test_setting_that_the_chosen_source_does_not_read_is_an_error(tmp_path: Path) -> None:
    sections = "  train_data: {source: digits, labels_file: b}"
    with problems.raises("no-effect", "task.train_data.labels_file"):
        _derive(tmp_path, _IMAGES, sections)


def test_settings_that_are_set_again_are_not_named() -> None:
    (note,) = _notes("digits", "task.model={name: mlp, dropout_rate: 0.4}")

    assert "filters=" in note
    assert "dropout_rate" not in note


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (
            [f"{_OPTIMIZER}.optimizer.type=sgd"],
            [f"{_OPTIMIZER}.optimizer.type is 'sgd'", "adam.beta_1=0.9", "adam.beta_2=0.98"],
        ),
        (
            [f"{_OPTIMIZER}.learning_rate={{type: constant, constant: {{learning_rate: 0.1}}}}"],
            [f"{_OPTIMIZER}.learning_rate.type is 'constant'", "power_linear.power=-0.5"],
        ),
        (
            [f"{_OPTIMIZER}.warmup={{type: polynomial, polynomial: {{warmup_steps: 3}}}}"],
            [f"{_OPTIMIZER}.warmup.type is 'polynomial'", "linear.warmup_steps=1000"],
        ),
    ],
)
def test_another_block_names_the_settings_of_the_one_before(
    overrides: list[str], parts: list[str]
) -> None:
    (note,) = _notes("transformer_multi30k", *overrides)

    for part in parts:
        assert part in note


def test_another_task_names_the_settings_of_the_one_before(tmp_path: Path) -> None:
    task = "{name: keras, model: 'a:b', loss: mse, train_data: {source: npz, input_path: a, "
    task += "global_batch_size: 8}, validation_data: {source: npz, input_path: a, "
    task += "global_batch_size: 8}}"
    (note,) = _notes("digits", f"task={task}")

    assert note.startswith("note: task.name is 'keras' (--params_override[0]); ")
    assert "train_data.augment='crop'" in note


def test_a_file_that_builds_on_another_names_what_it_discards(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base: digits.yaml\ntask: {model: {name: mlp}}\n")
    source = Path(__file__).parents[2] / "experiments" / "digits.yaml"
    (tmp_path / "digits.yaml").write_text(source.read_text())

    (note,) = _notes(str(tmp_path / "a.yaml"))
    assert "filters=[32, 64]" in note


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["task.model.name=cnn"],
        ["task.model.filters=[8, 8]"],
        [f"{_OPTIMIZER}.optimizer={{type: sgd, adam: {{beta_1: 0.5}}}}"],
        [f"{_OPTIMIZER}.optimizer.type=sgd"],  # Nothing was set for adam.
    ],
)
def test_nothing_is_discarded(overrides: list[str]) -> None:
    assert _notes("digits", *overrides) == ()


def test_commands_print_the_note(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--experiment=digits", "--task.model.name=mlp"]) == 0
    assert "note: task.model.name is 'mlp' (--task.model.name)" in capsys.readouterr().err
