"""Settings of image models that contradict each other or the images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orbit_runner.config.errors import Problem
from tests.support.problems import check

Refused = Callable[..., list[Problem]]
SMOKE = ("configs/trainer/smoke.yaml",)


def _refused(refused: Refused, experiment: str, **settings: Any) -> list[Problem]:
    flags = tuple(
        (f"--task.model.{name}", f"task.model.{name}", str(value))
        for name, value in settings.items()
    )
    return refused(experiment=experiment, config_files=SMOKE, flags=flags)


@pytest.mark.parametrize(
    ("experiment", "settings", "blamed", "code"),
    [
        ("resnet50_imagenet", {"depth": 51}, "depth", "not-allowed"),
        ("resnet50_imagenet", {"input_size": [224, 224]}, "input_size", "wrong-type"),
        ("resnet_cifar", {"input_size": [32]}, "input_size", "wrong-type"),
        ("vit_base_imagenet", {"model_name": "vit-b"}, "model_name", "not-allowed"),
        ("vit_base_imagenet", {"input_size": [224, 220, 3]}, "input_size", "not-supported"),
        ("vit_base_imagenet", {"pooler": "none"}, "pooler", "not-allowed"),
        ("efficientnet_imagenet", {"model_id": "b8"}, "model_id", "not-allowed"),
    ],
)
def test_invalid_image_model_setting_is_rejected(
    refused: Refused, experiment: str, settings: dict[str, Any], blamed: str, code: str
) -> None:
    problems = _refused(refused, experiment, **settings)
    path = f"task.model.{blamed}"
    check((problem for problem in problems if problem.path == path), (code, path))
