"""Who does without the settings of a role: repeated runs, inspections, and the launcher."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.base import Config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.inspection.experiment import single_replica_config
from orbit_runner.jobs import launch
from orbit_runner.repeat.plan import convert_to_single_process
from orbit_runner.repeat.rerun import without_side_effects
from orbit_runner.serving.loader import single_process_runtime

ROLES = {"cluster", "service", "devices", "output"}


def _changed(config: Any, roles: set[str], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields the path, another value and the changed config for each setting with a role."""
    for name, field in config.__dataclass_fields__.items():
        value = getattr(config, name)
        if isinstance(value, Config):
            for path, other, below in _changed(value, roles, f"{prefix}{name}."):
                yield path, other, config.replace(**{name: below})
        elif field.metadata.get("role") in roles:
            others = {bool: True, int: 7, tuple: ("other",)}
            other = "one_device" if value == "mirrored" else others.get(type(value), "other")
            yield f"{prefix}{name}", other, config.replace(**{name: other})


def _launched(config: ExperimentConfig) -> ExperimentConfig:
    checked: list[ResolvedConfig] = []
    plan: Any = SimpleNamespace(resolved=ResolvedConfig(config, {}), mode="eval", model_dir=Path())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "check_before_start", lambda request, *_: checked.append(request))
        launch._check_members(plan, next(launch.make_clusters({"worker": 1})))
    return checked[0].config


@pytest.mark.parametrize("role", sorted(ROLES))
def test_settings_of_a_role_have_no_effect_without_it(role):
    config = ExperimentConfig()
    changes = [changed for _, _, changed in _changed(config, {role})]

    assert changes
    for changed in changes:
        assert changed.without(role) == config.without(role)
        assert changed.without(*ROLES - {role}) != config.without(*ROLES - {role})


@pytest.mark.parametrize(
    ("strip", "prefix", "roles"),
    [
        (without_side_effects, "", {"output"}),
        (lambda config: convert_to_single_process(ResolvedConfig(config, {}), "").config,
         "", {"cluster", "service"}),
        (lambda config: config.replace(runtime=single_process_runtime(config.runtime)),
         "runtime.", {"cluster", "service", "devices"}),
        (lambda config: single_replica_config(config, 1), "", ROLES - {"devices"}),
        (_launched, "", {"cluster"}),
    ],
    ids=["rerun", "repetition", "serving", "inspect", "launch"],
)  # fmt: skip
def test_every_setting_of_a_role_is_left_out(strip, prefix, roles):
    for path, other, changed in _changed(ExperimentConfig(), roles):
        left = strip(changed)
        for name in path.split("."):
            left = getattr(left, name)
        assert left != other or not path.startswith(prefix), path
