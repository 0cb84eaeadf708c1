"""Networks that XLA compiles have the same weights twice, and after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.parsing.search_path import shipped_root
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from tests.support.small_experiments import overrides
from tests.support.toy import run

# `digits` and `resnet50_imagenet` have max pooling. XLA compiles the larger ones for minutes.
NETWORKS = (
    "digits",
    pytest.param("ncf_movielens", marks=pytest.mark.slow),
    pytest.param("resnet50_imagenet", marks=pytest.mark.wide),
    pytest.param("vit_base_imagenet", marks=pytest.mark.wide),
    pytest.param("efficientnet_imagenet", marks=pytest.mark.wide),
    pytest.param("transformer_multi30k", marks=pytest.mark.wide),
)
_STEPS = 4


def _config(experiment: str, **settings: Any) -> ExperimentConfig:
    changes = {
        "trainer.train_steps": _STEPS,
        "trainer.checkpoint_interval": _STEPS // 2,
        "trainer.validation_interval": _STEPS,
        "runtime.enable_xla": True,
        **settings,
    }
    files = ("trainer/smoke.yaml", "runtime/cpu.yaml")
    return resolve(
        Request(
            experiment=experiment,
            config_files=tuple(str(shipped_root() / "configs" / name) for name in files),
            params_overrides=(
                *overrides(experiment),
                *(f"{path}={value}" for path, value in changes.items()),
            ),
        )
    ).config


def _remove_last_checkpoint(folder: Path) -> None:
    removed = [*folder.glob(f"checkpoints/ckpt-{_STEPS}.*")]
    assert removed
    for path in removed:
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("experiment", NETWORKS)
def test_compiled_network_has_the_same_weights_twice_and_after_a_kill(
    experiment: str, tmp_path: Path
) -> None:
    config = _config(experiment)
    expected = weights_fingerprint(run(config, tmp_path / "a")[0])
    assert weights_fingerprint(run(config, tmp_path / "b")[0]) == expected

    _remove_last_checkpoint(tmp_path / "b")
    assert weights_fingerprint(run(config, tmp_path / "b")[0]) == expected


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize(
    "changes", [{}, {"trainer.gradient_accumulation_steps": 2}, {"runtime.logical_replicas": 4}]
)
def test_step_with_max_pooling_is_that_of_plain_ops(
    strategy: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    """The last bits differ, because XLA computes convolutions and sums in another order."""
    # Without dropout, because XLA draws other masks. With SGD, because Adam divides a gradient by
    # its own size, so it turns a rounding error of a gradient near zero into a whole step.
    changes = {
        "task.model.dropout_rate": 0.0,
        "trainer.train_steps": 1,
        "trainer.validation_interval": 1,
        "trainer.optimizer_config": {
            "optimizer": {"type": "sgd"},
            "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.01}},
        },
        **changes,
    }
    plain = _config("digits", **{"runtime.enable_xla": False, **changes})
    expected, _ = run(plain, tmp_path / "a", strategy=strategy)
    compiled, _ = run(_config("digits", **changes), tmp_path / "b", strategy=strategy)
    for weights, expected_weights in zip(
        compiled.get_weights(), expected.get_weights(), strict=True
    ):
        np.testing.assert_allclose(weights, expected_weights, rtol=1e-4, atol=1e-5)
