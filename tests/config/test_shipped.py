"""Every file in experiments/ and configs/ resolves, whichever there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orbit_runner.config.locate import experiment_files, fragment_files, shipped_root
from orbit_runner.config.problems import ConfigError
from orbit_runner.config.resolve import Request, resolve

ROOT = shipped_root()
FILES = sorted(p for folder in ("experiments", "configs") for p in (ROOT / folder).rglob("*.*"))
EXPERIMENTS = [path.stem for path in FILES if path.parent == ROOT / "experiments"]
FRAGMENTS = [p.relative_to(ROOT).as_posix() for p in FILES if p.is_relative_to(ROOT / "configs")]


def test_every_file_in_the_two_folders_is_found_by_its_name(write: Callable[..., str]) -> None:
    assert [*experiment_files()] == EXPERIMENTS
    assert [*fragment_files()] == FRAGMENTS
    assert len(FILES) == len(EXPERIMENTS) + len(FRAGMENTS) > 10


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_complete(name: str, write: Callable[..., str]) -> None:
    # `write` has left the checkout: what is shipped is found from any folder.
    resolved = resolve(Request(experiment=name))

    config = resolved.config
    assert config.name == name
    assert config.description
    assert config.trainer.train_steps or config.trainer.train_epochs
    assert "runtime.seed" in resolved.origins


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_fragment_fits_an_experiment_and_changes_it(name: str, write: Callable[..., str]) -> None:
    fitting = []
    for experiment in EXPERIMENTS:
        try:
            resolved = resolve(Request(experiment=experiment, config_files=(name,)))
        except ConfigError:
            continue
        fitting.append(experiment)
        said = {path for path, origin in resolved.origins.items() if origin.label == name}
        assert said - {"description"}

    assert fitting


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_smoke_fragment_fits_every_experiment(experiment: str) -> None:
    config: Any = resolve(
        Request(experiment=experiment, config_files=("configs/trainer/smoke.yaml",))
    ).config

    assert config.trainer.train_steps <= 10
    assert config.task.train_data.source == "synthetic"
