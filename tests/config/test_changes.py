"""The settings that were set over the experiment."""

from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml

MLP = "task.model={name: mlp, hidden_units: [8]}"
FLAG = (("--seed", "runtime.seed", "3"),)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with an experiment, a run directory, and files over them."""
    monkeypatch.chdir(tmp_path)
    text = to_yaml(resolve(Request(experiment="digits")).config)
    (tmp_path / "own.yaml").write_text(text)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/config.yaml").write_text(text)
    (tmp_path / "over.yaml").write_text("trainer: {max_to_keep: 4}\n")
    (tmp_path / "over.gin").write_text("trainer.summary_interval = 4\nmy_code.depth = 2\n")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"experiment": "digits"}, {}),
        ({"experiment": "digits_mlp"}, {}),
        ({"experiment": "digits_mlp", "flags": FLAG}, {"runtime.seed": 3}),
        ({"experiment": "own.yaml"}, {}),
        ({"experiment": "a", "flags": FLAG}, {"runtime.seed": 3}),
        ({"experiment": "own.yaml", "flags": FLAG}, {"runtime.seed": 3}),
        ({"experiment": "own.yaml", "imports": ("json",)}, {}),
        ({"experiment": "own.yaml", "config_files": ("over.yaml",)}, {"trainer.max_to_keep": 4}),
        (
            {"experiment": "own.yaml", "gin_files": ("over.gin",)},
            {"trainer.summary_interval": 4, "gin_bindings": ["my_code.depth = 2"]},
        ),
        (
            {"experiment": "own.yaml", "gin_params": ("trainer.train_steps=6",)},
            {"trainer.train_steps": 6},
        ),
        # The same value as in the experiment was still set over it.
        (
            {"experiment": "own.yaml", "params_overrides": ("trainer.max_to_keep=2",)},
            {"trainer.max_to_keep": 2},
        ),
        (
            {"experiment": "digits", "params_overrides": (MLP,)},
            {"task.model.name": "mlp", "task.model.hidden_units": [8]},
        ),
        (
            {"experiment": "digits", "params_overrides": ("trainer: {early_stopping: null}",)},
            {"trainer.early_stopping": None},
        ),
    ],
)  # fmt: skip
def test_changes_are_the_settings_over_the_experiment(
    given: dict[str, Any], expected: dict[str, Any], folder: Path
) -> None:
    assert resolve(Request(**given)).changes() == expected


def test_all_settings_are_changes_without_an_experiment(folder: Path) -> None:
    changes = resolve(Request(config_files=("own.yaml",))).changes()

    assert changes["trainer.max_to_keep"] == 2
    assert changes["task.train_data.source"] == "digits"


def test_changes_over_an_experiment_of_model_garden() -> None:
    found = resolve(Request(experiment="official/resnet_imagenet", flags=FLAG)).changes()

    assert found == {"runtime.seed": 3}
