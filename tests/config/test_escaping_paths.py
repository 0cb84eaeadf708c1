"""Settings that directories are named after, and `~` in path arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from orbit_runner.cli.command import parse_flags
from orbit_runner.cli.commands.run import COMMAND, choose_model_dir
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.base import Config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.config.walk import nodes
from tests.support.problems import check, output_of

NAMED_AFTER = {"name", "trainer.best_checkpoint_export_subdir", "trainer.export_subdir"}


def _fields(config: Config, path: str = "") -> Iterator[tuple[str, dataclasses.Field[object]]]:
    for node in nodes(config, path):
        yield node.path, node.field
        if isinstance(node.value, Config):
            yield from _fields(node.value, node.path)


def test_every_subdirectory_setting_is_declared_as_a_subdirectory():
    fields = dict(_fields(ExperimentConfig()))

    assert {path for path, field in fields.items() if field.metadata.get("subdirectory")} == (
        NAMED_AFTER
    )
    assert {path for path in fields if path.endswith("subdir")} <= NAMED_AFTER


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "../../evil"),
        ("trainer.best_checkpoint_export_subdir", ".."),
        *(("trainer.export_subdir", value) for value in (
            "/tmp/evil", "~/evil", "a/../../b", "gs://bucket/x", ".", "./", "a\0b", "a\nb",
            "x" * 300,
        )),
    ],
)  # fmt: skip
def test_unsafe_directory_name_is_rejected(refused, path, value):
    problems = refused(flags=((f"--{path}", path, inline_yaml(value)),))

    check(problems[:1], ("bad-path", path))


@pytest.mark.parametrize("value", ["saved", "a/b", "saved-1.0", "…é", ".hidden", "a..b"])
def test_safe_directory_name_is_accepted(over_digits, value):
    config = over_digits(params_overrides=(f"trainer: {{export_subdir: '{value}'}}",))

    assert config.trainer.export_subdir == value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("best_checkpoint_export_subdir", "checkpoints"),
        *(("export_subdir", value) for value in (
            "checkpoints", "./checkpoints/", "checkpoints//.", "checkpoints/a", "assets", ".lock",
            "run.json", "run.eval.json", "train/x", "validation", "report_data", "code.patch",
        )),
    ],
)  # fmt: skip
def test_name_of_a_file_of_the_run_is_rejected_as_export_subdirectory(refused, field, value):
    check(refused(params_overrides=(f"trainer.{field}={value}",)), ("conflict", f"trainer.{field}"))


def test_run_in_parent_directory_is_named_after_its_directory(tmp_path, monkeypatch):
    text = output_of(["show", "--experiment=digits"]).replace("name: digits\n", "", 1)
    (tmp_path / "above/below").mkdir(parents=True)
    (tmp_path / "above/config.yaml").write_text(text)
    monkeypatch.chdir(tmp_path / "above/below")

    assert resolve(Request(experiment="..")).config.name == "above"


def test_tilde_in_a_path_expands_to_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.yaml").write_text("runtime: {seed: 5}\n")
    flags = parse_flags(COMMAND.parser(), ["--model_dir=~/x", "--config_file=~/a.yaml"])

    assert choose_model_dir(flags, resolve(Request(experiment="digits"))) == tmp_path / "x"
    assert flags.config_file == [str(tmp_path / "a.yaml")]
