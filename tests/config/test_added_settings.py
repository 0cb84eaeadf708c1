"""A setting that is added to a task does not change the identity of the runs before."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.fingerprint import config_fingerprint, has_same_settings, identity_settings
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.base import Config, field
from orbit_runner.config.schema.experiment import ExperimentConfig, TaskConfig
from orbit_runner.config.serialize import to_yaml
from orbit_runner.registry import TASKS
from orbit_runner.run_directory.config import is_made_with, keep_config


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkBefore(Config):
    """A section before settings were added."""

    units: int = field(4, help="width")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Before(TaskConfig):
    """The task before settings were added."""

    network: NetworkBefore = field(factory=NetworkBefore, help="the network")
    names: list[str] = field(factory=list, help="a list")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extra(Config):
    """A new section."""

    rate: float = field(0.5, help="a setting in it")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkAfter(NetworkBefore):
    """A section with a new setting."""

    dropout_rate: float = field(0.0, help="new")


@dataclasses.dataclass(frozen=True, kw_only=True)
class After(Before):
    """The task with new settings."""

    network: NetworkAfter = field(factory=NetworkAfter, help="the network")
    extra: Extra = field(factory=Extra, help="new")
    sizes: list[int] = field(factory=lambda: [1, 2], help="new, a list")


def _version(config: type) -> None:
    TASKS._entries.pop("added", None)
    TASKS.register("added", config=config, target="none:None")


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
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
def run(tmp_path: Path) -> tuple[Path, str]:
    """A run before settings were added: its directory, and the fingerprint in its records."""
    _version(Before)
    config = _config(("task.network.units", "8"))
    keep_config(tmp_path, config)
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    return tmp_path, config_fingerprint(config)


CHANGES = [
    [],
    [("task.network.units", "9")],
    [("task.network.dropout_rate", "0.1")],
    [("task.extra.rate", "0.6")],
    [("task.sizes", "[1]")],
    [("task.names", "[a]")],
]


@pytest.mark.parametrize("changes", CHANGES)
def test_config_differs_from_earlier_run_only_if_settings_changed(
    changes: list[tuple[str, str]], run: tuple[Path, str]
) -> None:
    folder, fingerprint = run
    _version(After)
    config = _config(*changes, file=folder / "config.yaml")
    assert config_fingerprint(config) != fingerprint
    assert is_made_with(folder, fingerprint, config) is not bool(changes)


def test_earlier_run_is_recognized_after_config_is_rewritten(run: tuple[Path, str]) -> None:
    folder, fingerprint = run
    _version(After)
    config = _config(file=folder / "config.yaml")
    keep_config(folder, config)  # What a resume does before it writes the file.
    (folder / "config.yaml").write_text(to_yaml(config))
    assert is_made_with(folder, fingerprint, config)
    assert is_made_with(folder, config_fingerprint(config), config)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff"])
def test_corrupt_saved_settings_are_ignored(content: bytes, run: tuple[Path, str]) -> None:
    folder, fingerprint = run
    (path,) = (folder / "checkpoints" / "configs").iterdir()
    path.write_bytes(content)
    assert is_made_with(folder, fingerprint, _config(file=folder / "config.yaml"))
    _version(After)
    assert not is_made_with(folder, fingerprint, _config(file=folder / "config.yaml"))


def test_removed_setting_counts_as_a_difference() -> None:
    _version(After)
    before: dict[str, Any] = json.loads(json.dumps(identity_settings(_config())))
    _version(Before)
    assert not has_same_settings(before, _config())
