"""Virtual GPUs: parts of one GPU. Only the list of GPUs and the CUDA driver are stand-ins."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute import devices, strategies
from orbit_runner.distribute.strategies import build_strategy

_TWO = RuntimeConfig(num_gpus=1, num_virtual_devices=2)
# Adds two GPUs to those that TensorFlow lists. Everything else is TensorFlow's own.
_SETUP = """
import json
import tensorflow as tf
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute import devices
from orbit_runner.distribute.devices import DeviceError, select_devices
from orbit_runner.tf_internals import eager_context

tf.config.list_physical_devices()
state = eager_context()
gpus = [tf.config.PhysicalDevice(f"/physical_device:GPU:{n}", "GPU") for n in range(2)]
state._physical_devices += gpus
state._memory_growth_map |= dict.fromkeys(gpus)
devices.gpu_memory = lambda: MEMORY

def attempt(**settings):
    try:
        return select_devices(RuntimeConfig(**settings))
    except DeviceError as error:
        return str(error)
"""


def _with_gpus(code: str, memory: int | None) -> Any:
    """Runs code in a process with GPUs in the list, and returns what it prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", _SETUP.replace("MEMORY", str(memory)) + code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_parts_of_a_gpu_share_its_memory_equally() -> None:
    found = _with_gpus(
        """
names = attempt(num_gpus=1, num_virtual_devices=3)
options = state.config.gpu_options
limits = [list(one.memory_limit_mb) for one in options.experimental.virtual_devices]
visible = [gpu.name for gpu in tf.config.get_visible_devices("GPU")]
tf.constant(0.0)  # Starts TensorFlow.
later = [attempt(num_gpus=1, num_virtual_devices=count) for count in (2, 4)]
print(json.dumps([names, limits, visible, later]))
""",
        memory=80 * 2**30,
    )
    names, limits, visible, (fewer, more) = found
    assert names == ["GPU:0", "GPU:1", "GPU:2"]
    assert limits == [[int(0.9 * 80 * 1024 / 3)] * 3]
    assert visible == ["/physical_device:GPU:0"]
    assert fewer == ["GPU:0", "GPU:1"]
    assert more == (
        "runtime.num_virtual_devices: got 4, but TensorFlow has already started with 3 in this "
        "process; the number can be set only once per process"
    )


@pytest.mark.slow
def test_gpu_whose_memory_is_unknown_cannot_be_divided() -> None:
    divided, whole = _with_gpus(
        "print(json.dumps([attempt(num_gpus=1, num_virtual_devices=2), attempt(num_gpus=1)]))",
        memory=None,
    )
    assert divided.startswith("runtime.num_virtual_devices: got 2 with num_gpus: 1, but the size")
    assert "the CUDA driver (libcuda.so.1) cannot be used\nallowed: 1; or set" in divided
    assert whole == ["GPU:0"]


class _Driver:
    """Stands in for the CUDA driver of a GPU with 80 GiB."""

    def __init__(self, code: int) -> None:
        self.cuInit = lambda flags: code
        self.cuDeviceGet = self._get
        self.cuDeviceTotalMem_v2 = self._total

    def _get(self, device: Any, ordinal: int) -> int:
        assert ordinal == 0
        device._obj.value = 7
        return 0

    def _total(self, total: Any, device: ctypes.c_int) -> int:
        assert device.value == 7
        total._obj.value = 80 * 2**30
        return 0


@pytest.mark.parametrize(("code", "expected"), [(0, 80 * 2**30), (100, None)])
def test_gpu_memory_is_read_from_the_driver(
    code: int, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name: asked.append(name) or _Driver(code))
    assert devices.gpu_memory() == expected
    assert asked == ["libcuda.so.1"]


def test_gpu_memory_is_unknown_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_CUDA_DRIVER", "libno-such-driver.so.1")
    assert devices.gpu_memory() is None


def test_virtual_gpus_are_reduced_on_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "select_devices", lambda runtime: ("CPU:0", "CPU:1"))
    strategy = build_strategy(_TWO)
    assert strategy.num_replicas_in_sync == 2
    assert type(strategy.extended._cross_device_ops) is tf.distribute.ReductionToOneDevice


def test_peak_performance_of_virtual_gpus_is_that_of_their_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = [tf.config.PhysicalDevice(f"/physical_device:GPU:{n}", "GPU") for n in range(2)]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: cards)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: cards[:1])
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda gpu: {"device_name": "NVIDIA H100"}
    )
    monkeypatch.setattr(devices, "local_devices", lambda strategy: ["GPU:0"])
    one = devices.peak_flops_of_gpus(None, "float32")
    monkeypatch.setattr(devices, "local_devices", lambda strategy: ["GPU:0", "GPU:1"])
    assert one is not None
    assert devices.peak_flops_of_gpus(None, "float32") == one
