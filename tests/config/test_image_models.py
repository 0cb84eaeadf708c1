"""Settings of image models that contradict each other or the images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orbit_runner.config.errors import Problem

Refused = Callable[..., list[Problem]]
SMOKE = ("configs/trainer/smoke.yaml",)


def _refused(refused: Refused, experiment: str, **settings: Any) -> dict[str, str]:
    flags = tuple(
        (f"--task.model.{name}", f"task.model.{name}", str(value))
        for name, value in settings.items()
    )
    problems = refused(experiment=experiment, config_files=SMOKE, flags=flags)
    return {problem.path: problem.message for problem in problems}


@pytest.mark.parametrize(
    ("experiment", "settings", "blamed", "said"),
    [
        ("resnet50_imagenet", {"depth": 51}, "depth", "50"),
        ("resnet50_imagenet", {"version": 1.6}, "version", "1.5"),
        (
            "resnet50_imagenet",
            {"version": 2, "zero_init_last_bn": True},
            "zero_init_last_bn",
            "version 2",
        ),
        ("resnet50_imagenet", {"input_size": [224, 224]}, "input_size", "height, width"),
        ("resnet_cifar", {"input_size": [32]}, "input_size", "height, width"),
        ("vit_base_imagenet", {"model_name": "vit-b"}, "model_name", "vit-b16"),
        ("vit_base_imagenet", {"input_size": [224, 220, 3]}, "input_size", "multiples of 16"),
        ("vit_base_imagenet", {"pooler": "none"}, "pooler", "gap"),
        ("efficientnet_imagenet", {"model_id": "b8"}, "model_id", "b7"),
    ],
)
def test_invalid_image_model_setting_is_rejected(
    refused: Refused, experiment: str, settings: dict[str, Any], blamed: str, said: str
) -> None:
    problems = _refused(refused, experiment, **settings)
    assert said in problems[f"task.model.{blamed}"]


def test_resnet_version_accepts_an_integer(over_digits: Callable[..., Any]) -> None:
    flags = (
        ("--task.model.name", "task.model.name", "resnet"),
        ("--task.model.version", "task.model.version", "1"),
    )
    model = over_digits(experiment="resnet50_imagenet", config_files=SMOKE, flags=flags).task.model
    assert model.version == 1
