"""Portable numerics give the same weights whatever the environment and the cores are."""

import functools
import os
import tempfile
from pathlib import Path

import pytest

from tests.support.portable_runs import FLAGS, portable_weights

STEPS = {"digits": 200, "digits_mlp": 200}
_SAMPLE = ("digits", "resnet_cifar", "transformer_multi30k")
CORE = str(min(os.sched_getaffinity(0)))
# oneDNN and NumPy would use other code, and each op as many threads as it gets.
ENVIRONMENT = {
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL": "1",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "TF_NUM_INTRAOP_THREADS": "3",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL",
}


@functools.cache
def _plain(name):
    with tempfile.TemporaryDirectory() as folder:
        return portable_weights(name, Path(folder), STEPS.get(name, 30))


# The others have no other kinds of layers.
_NAMES = [pytest.param(name, marks=() if name in _SAMPLE else pytest.mark.wide) for name in FLAGS]


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMES)
def test_environment_and_cores_do_not_change_the_weights(name, tmp_path):
    weights = portable_weights(
        name, tmp_path, STEPS.get(name, 30),
        prefix=("taskset", "-c", CORE), environment=ENVIRONMENT,
    )  # fmt: skip
    assert weights == _plain(name)
