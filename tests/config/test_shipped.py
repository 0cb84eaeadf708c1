"""Every file in experiments/ and configs/ resolves."""

from __future__ import annotations

from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.parsing.search_path import experiment_files, fragment_files, shipped_root
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.task_data import task_data

ROOT = shipped_root()
OTHERS = {ROOT / "configs" / "sweeps", ROOT / "configs" / "clusters"}
FILES = sorted(
    path
    for folder in ("experiments", "configs")
    for path in (ROOT / folder).rglob("*.*")
    if OTHERS.isdisjoint(path.parents)
)
EXPERIMENTS = [path.stem for path in FILES if path.parent == ROOT / "experiments"]
FRAGMENTS = [p.relative_to(ROOT).as_posix() for p in FILES if p.is_relative_to(ROOT / "configs")]


def test_every_shipped_file_is_found_by_name(write):
    assert [*experiment_files()] == EXPERIMENTS
    assert [*fragment_files()] == FRAGMENTS
    assert len(FILES) == len(EXPERIMENTS) + len(FRAGMENTS) > 10


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_shipped_experiment_has_description_steps_and_seed(name, write):
    # `write` has left the checkout: shipped files are found from any directory.
    resolved = resolve(Request(experiment=name))

    config = resolved.config
    assert config.name == name
    assert config.description
    assert config.trainer.train_steps or config.trainer.train_epochs
    assert "runtime.seed" in resolved.origins


@pytest.mark.parametrize("name", FRAGMENTS)
def test_fragment_applies_to_some_experiment_and_changes_it(name, write):
    for experiment in EXPERIMENTS:
        try:
            resolved = resolve(Request(experiment=experiment, config_files=(name,)))
        except ConfigError:
            continue
        changed = {path for path, origin in resolved.origins.items() if origin.label == name}
        assert changed - {"description"}
        return
    pytest.fail("it fits no experiment")


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_synthetic_data_fits_every_experiment_without_any_file(experiment, write):
    synthetic = ("configs/data/synthetic.yaml",)
    task: Any = resolve(Request(experiment=experiment, config_files=synthetic)).config.task

    assert (task.train_data.source, task.validation_data.source) == ("synthetic", "synthetic")
    assert [*task_data(task).problems()] == []


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_smoke_fragment_makes_every_experiment_short_and_needs_no_file(experiment, write):
    smoke = ("configs/trainer/smoke.yaml",)
    config: Any = resolve(Request(experiment=experiment, config_files=smoke)).config

    sections = (config.task.train_data, config.task.validation_data)
    assert [section.source for section in sections] == ["synthetic", "synthetic"]
    assert [section.global_batch_size for section in sections] == [8, 8]
    assert [*task_data(config.task).problems()] == []
    assert config.trainer.best_checkpoint_export_subdir == ""
    assert config.trainer.train_steps == config.trainer.validation_interval == 3
    assert config.trainer.train_epochs in (None, 0)


IMAGES = 1_281_167


def _imagenet(name: str) -> Any:
    return resolve(Request(experiment=name)).config


def _steps(config: Any, epochs: float) -> int:
    return round(epochs * IMAGES / config.task.train_data.global_batch_size)


def test_imagenet_schedules_match_epochs_and_batch_size():
    resnet, vit, efficientnet = map(
        _imagenet, ("resnet50_imagenet", "vit_base_imagenet", "efficientnet_imagenet")
    )

    def schedule(config: Any) -> Any:
        return config.trainer.optimizer_config.learning_rate.get()

    batches = {config.task.train_data.global_batch_size for config in (resnet, vit, efficientnet)}
    assert batches == {4096}
    assert resnet.trainer.train_epochs == 90
    assert [*schedule(resnet).boundaries] == [_steps(resnet, n) for n in (30, 60, 80)]
    rates = [0.1 * 4096 / 256 / 10**n for n in range(4)]
    assert [*schedule(resnet).values] == pytest.approx(rates)
    assert vit.trainer.train_epochs == 300
    assert schedule(vit).decay_steps == "auto"  # All steps of the run.
    assert schedule(vit).initial_learning_rate == pytest.approx(0.0005 * 4096 / 512)
    assert efficientnet.trainer.train_epochs == 350
    assert schedule(efficientnet).decay_steps == _steps(efficientnet, 2.4)
