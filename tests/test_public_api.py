"""The names that `orbit_runner` exports: importable, documented, and light."""

from __future__ import annotations

import pytest

import orbit_runner
from tests.support.problems import raises

PUBLIC = [name for name in orbit_runner.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_exists_and_has_a_docstring(name):
    assert getattr(orbit_runner, name).__doc__


def test_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'run_experimnt'"):
        _ = orbit_runner.run_experimnt


def test_load_config_merges_files_then_overrides(tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.gin"
    first.write_text("trainer: {train_steps: 5, checkpoint_interval: 5}\n")
    second.write_text("trainer.checkpoint_interval = 6\n")
    overrides = {"trainer.train_steps": 7, "task.model.filters": [3, 4], "name": "mine"}
    config = orbit_runner.load_config("digits", str(first), str(second), overrides=overrides)
    assert (config.trainer.train_steps, config.trainer.checkpoint_interval) == (7, 6)
    assert config.task.model.filters == (3, 4)
    assert config.name == "mine"


def test_load_config_reports_an_unknown_override():
    with raises("unknown-setting", "trainer.train_stps"):
        orbit_runner.load_config("digits", overrides={"trainer.train_stps": 7})
