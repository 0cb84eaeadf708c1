"""`validate` checks a config file of Model Garden with the experiment that its comment names."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_runner.cli.commands import validate
from orbit_runner.cli.main import main

_SETTINGS = "task: {model: {num_classes: 7}}\ntrainer: {train_steps: 5}\n"


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# --experiment_type=resnet_imagenet\n# ResNet-50\n", "official/resnet_imagenet"),
        ("# ResNet-50\n\n# --experiment=bert/squad --mode=train\n", "official/bert/squad"),
        ("# Run with --experiment=official/mobilenet_imagenet.\n", "official/mobilenet_imagenet"),
        ("# python3 train.py --experiment_type='detr_coco'\n", "official/detr_coco"),
        ("", ""),
        ("trainer: {}\n# --experiment_type=resnet_imagenet\n", ""),
    ],
)
def test_experiment_is_read_from_the_comment(tmp_path: Path, comment: str, expected: str) -> None:
    (tmp_path / "a.yaml").write_text(comment + _SETTINGS)

    assert validate._experiment_in_comment(str(tmp_path / "a.yaml")) == expected
    assert validate._experiment_in_comment("digits") == ""


@pytest.mark.slow
def test_file_is_checked_with_the_experiment_of_model_garden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(f"# --experiment_type=resnet_imagenet\n{_SETTINGS}")
    Path("bad.yaml").write_text(
        f"# --experiment_type=resnet_imagenet\n{_SETTINGS.replace('num_classes', 'num_clases')}"
    )

    assert main(["validate", "good.yaml"]) == 0
    said = capsys.readouterr()
    assert said.out == "good.yaml: ok\n"
    assert (
        "note: good.yaml: checked with --experiment=official/resnet_imagenet, which its first "
        "comment names" in said.err
    )
    assert main(["validate", "bad.yaml"]) == 2
    assert "did you mean 'num_classes'" in capsys.readouterr().err


@pytest.mark.slow
def test_experiment_that_is_not_registered_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(f"# --experiment_type=resnet_imagenett\n{_SETTINGS}")

    assert main(["validate", "a.yaml"]) == 2
    said = capsys.readouterr().err
    assert "official/resnet_imagenett" in said
    assert "did you mean" in said
