"""Portable numerics give the same weights on emulated processors.

`make soak SUITE=portable` runs every network on every processor; the tests run a sample, if
the emulator `qemu-x86_64` is installed (the package `qemu-user` of Debian).
"""

import functools
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support.portable_runs import FLAGS, portable_weights

EMULATOR = shutil.which("qemu-x86_64")
STEPS = 10
# Haswell and Skylake have no AVX-512. The caches of the last one are larger, as Eigen reads them.
PROCESSORS = (
    "Haswell",
    "EPYC",
    "Skylake-Client",
    "Skylake-Server",
    "Haswell,vendor=AuthenticAMD",
)
SAMPLE = ("digits_mlp", "Haswell,vendor=AuthenticAMD")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(EMULATOR is None, reason="qemu-x86_64 is not installed"),
]


@functools.cache
def _here(name):
    with tempfile.TemporaryDirectory() as folder:
        return portable_weights(name, Path(folder), STEPS)


CASES = [
    pytest.param(name, processor, marks=() if (name, processor) == SAMPLE else pytest.mark.emulated)
    for name in FLAGS
    for processor in PROCESSORS
]


@pytest.mark.promise("weights", "with portable numerics, other processors give the same weights")
@pytest.mark.parametrize(("name", "processor"), CASES)
def test_weights_are_the_same_on_another_processor(name, processor, tmp_path):
    there = portable_weights(
        name, tmp_path, STEPS, prefix=(EMULATOR, "-cpu", processor), timeout=3600.0
    )
    assert there == _here(name)
