"""After a setting is added to a task, earlier runs can be resumed with its default."""

import contextlib
import dataclasses
from pathlib import Path

import pytest

from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.base import field
from orbit_runner.config.schema.experiment import ExperimentConfig, TaskConfig
from orbit_runner.config.serialize import to_yaml
from orbit_runner.registry import TASKS
from orbit_runner.run_directory.config import check_restored_config
from tests.support.problems import raises


@dataclasses.dataclass(frozen=True, kw_only=True)
class Before(TaskConfig):
    """The task before a setting was added."""

    units: int = field(4, help="width")


@dataclasses.dataclass(frozen=True, kw_only=True)
class After(Before):
    """The task with a new setting."""

    dropout_rate: float = field(0.0, help="new")


def _version(config: type) -> None:
    TASKS._entries.pop("added", None)
    TASKS.register("added", config=config, target="none:None")


@pytest.fixture(autouse=True)
def registry():
    """Leaves the registry as it was."""
    yield
    TASKS._entries.pop("added", None)


def _config(*flags: tuple[str, str], file: Path | None = None) -> ExperimentConfig:
    optimizer = "trainer.optimizer_config"
    named = [
        ("task.name", "added"),
        ("trainer.train_steps", "9"),
        (f"{optimizer}.optimizer.type", "sgd"),
        (f"{optimizer}.learning_rate.type", "constant"),
        (f"{optimizer}.learning_rate.constant.learning_rate", "0.1"),
        *flags,
    ]
    settings = tuple((f"--{path}", path, value) for path, value in ([] if file else named))
    more = tuple((f"--{path}", path, value) for path, value in flags)
    request = Request(experiment=str(file), flags=more) if file else Request(flags=settings)
    return resolve(request).config


@pytest.fixture
def run(tmp_path):
    """A run before settings were added: its directory, and the fingerprint in its records."""
    _version(Before)
    config = _config(("task.units", "8"))
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    return tmp_path, config_fingerprint(config)


@pytest.mark.parametrize("changes", [[], [("task.units", "9")], [("task.dropout_rate", "0.1")]])
def test_config_differs_from_earlier_run_only_if_settings_changed(changes, run):
    folder, fingerprint = run
    _version(After)
    config = _config(*changes, file=folder / "config.yaml")
    assert config_fingerprint(config) != fingerprint
    with raises("other-config") if changes else contextlib.nullcontext():
        check_restored_config(folder, fingerprint, config)
