from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest


def run_of(**changes: Any) -> SimpleNamespace:
    values: dict[str, Any] = {
        "step": 0,
        "train_steps": 64_000,
        "steps_per_epoch": 390.625,
        "examples_per_step": 128.0,
        "best": SimpleNamespace(result=lambda: ("accuracy", 0.8431, 11_200)),
        "config": SimpleNamespace(trainer=SimpleNamespace(summary_interval=100)),
        "inexact_reasons": list,
    }
    return SimpleNamespace(**{**values, **changes})


@pytest.fixture
def make_run() -> Callable[..., SimpleNamespace]:
    """Returns the part of a run that progress displays read."""
    return run_of
