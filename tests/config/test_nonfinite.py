"""Contradictions of `trainer.on_nonfinite` and `trainer.skip_steps` with other settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError

ROLLS_BACK = "trainer.recovery_max_trials=2"
SERVED = "runtime.distribution_strategy=parameter_server"
SKIPS = "trainer.on_nonfinite=skip"


@pytest.mark.parametrize(
    ("overrides", "path", "message"),
    [
        (["trainer.on_nonfinite=rollback"], "on_nonfinite", "set trainer.recovery_max_trials"),
        ([SKIPS, ROLLS_BACK], "on_nonfinite", "recovery_max_trials is 2, which rolls back"),
        (["trainer.on_nonfinite=stop", ROLLS_BACK], "on_nonfinite", "got 'stop'"),
        ([SKIPS, SERVED], "on_nonfinite", "allowed: null, 'stop', 'rollback'"),
        (["trainer.skip_steps=[7]", SERVED], "skip_steps", "allowed: [] under `parameter_server`"),
        (["trainer.max_skipped_steps=3"], "max_skipped_steps", "no effect without on_nonfinite"),
    ],
)
def test_contradiction_is_an_error(
    over_digits: Callable[..., Any], overrides: list[str], path: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        over_digits(params_overrides=tuple(overrides))
    (found,) = (one for one in caught.value.problems if one.path == f"trainer.{path}")
    assert message in found.message


@pytest.mark.parametrize(
    "overrides",
    [
        ["trainer.on_nonfinite=rollback", ROLLS_BACK],
        [SKIPS, "trainer.max_skipped_steps=3", "trainer.skip_steps=[7]"],
        [SKIPS, "trainer.recovery_max_trials=-1"],
        ["trainer.on_nonfinite=stop"],
        [ROLLS_BACK],
    ],
)
def test_settings_that_go_together(over_digits: Callable[..., Any], overrides: list[str]) -> None:
    over_digits(params_overrides=tuple(overrides))
