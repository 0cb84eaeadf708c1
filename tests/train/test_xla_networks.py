"""Networks that XLA compiles have the same weights after a kill."""

import pytest

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.parsing.search_path import shipped_root
from orbit_runner.config.resolve import Request, resolve
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


def _config(experiment, **settings):
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


@pytest.mark.slow
@pytest.mark.parametrize("experiment", NETWORKS)
def test_compiled_network_has_the_same_weights_after_a_kill(experiment, tmp_path):
    config = _config(experiment)
    expected = weights_fingerprint(run(config, tmp_path)[0])

    (tmp_path / "checkpoints" / f"ckpt-{_STEPS}.index").unlink()
    assert weights_fingerprint(run(config, tmp_path)[0]) == expected
