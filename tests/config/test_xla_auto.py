"""`runtime.enable_xla: auto` stands for a value that only the config decides."""

from __future__ import annotations

from typing import Any

import pytest

from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.resolve import Request, load_config, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import RuntimeConfig

_GPU = {"runtime.distribution_strategy": "one_device", "runtime.num_gpus": 1}


def _uses_xla(experiment: str = "digits", **changes: Any) -> bool:
    overrides = {"runtime.enable_xla": "auto", **_GPU, **changes}
    value = load_config(experiment, overrides=overrides).runtime.enable_xla
    assert isinstance(value, bool)
    return value


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"runtime.num_gpus": 0}, False),
        ({"runtime.distribution_strategy": "mirrored", "runtime.num_gpus": -1}, True),
        ({"runtime.distribution_strategy": "multi_worker_mirrored"}, True),
        ({"runtime.distribution_strategy": "parameter_server", "runtime.num_workers": 1}, False),
        ({"runtime.run_eagerly": True}, False),
        ({"runtime.logical_replicas": 2}, True),
    ],
)
def test_auto_compiles_on_gpus_where_nothing_speaks_against_it(changes, expected):
    assert _uses_xla(**changes) is expected


def test_auto_has_the_fingerprint_of_its_value():
    auto, explicit = (
        load_config("digits", overrides={**_GPU, "runtime.enable_xla": value})
        for value in ("auto", True)
    )
    assert config_fingerprint(auto) == config_fingerprint(explicit)
    assert auto == explicit


@pytest.mark.parametrize("name", ["one_gpu", "mirrored_2gpu", "mirrored_all_gpus"])
def test_shipped_fragments_for_gpus_compile(name):
    file = f"configs/runtime/{name}.yaml"
    assert load_config("resnet_cifar", file).runtime.enable_xla is True
    off = load_config("resnet_cifar", file, overrides={"runtime.enable_xla": False})
    assert off.runtime.enable_xla is False


def test_config_built_in_python_has_a_boolean_too():
    config = ExperimentConfig(runtime=RuntimeConfig(enable_xla="auto", num_gpus=1))
    assert config.runtime.enable_xla is True
    assert config.replace(name="other").runtime.enable_xla is True


@pytest.mark.parametrize(("experiment", "expected"), [
    ("official/resnet_imagenet", True), ("official/resnet_rs_imagenet", False),
])  # fmt: skip
def test_experiments_of_model_garden_keep_their_value(experiment, expected):
    request = Request(experiment=experiment, config_files=("configs/runtime/one_gpu.yaml",))
    config = resolve(request).config
    assert config.runtime.enable_xla is expected
    assert config.for_task.runtime.enable_xla is expected
