"""Settings of a lower layer are discarded if a higher one chooses a source that lacks them."""

from __future__ import annotations

from pathlib import Path

from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from tests.support import problems

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


def test_another_source_drops_the_settings_that_only_the_one_before_reads(tmp_path):
    resolved = _derive(tmp_path, _ARRAYS, "  outputs: y\n  train_data: {source: csv, data_dir: a}")

    data = resolved.config.task.train_data
    assert (data.function, data.arguments, data.split) == ("", {}, "train")
    assert "task.train_data.function" not in resolved.origins


def test_another_source_drops_what_it_reads_from_another_setting(tmp_path):
    sections = "".join(
        f"  {section}: {{source: tfds, tfds_name: mnist}}\n"
        for section in ("train_data", "validation_data")
    )
    resolved = _derive(tmp_path, _IMAGES, sections)

    assert resolved.config.task.train_data.data_dir == ""
    assert resolved.config.task.validation_data.labels_file == ""


def test_setting_that_the_chosen_source_does_not_read_is_an_error(tmp_path):
    sections = "  train_data: {source: digits, labels_file: b}"
    with problems.raises("no-effect", "task.train_data.labels_file"):
        _derive(tmp_path, _IMAGES, sections)
