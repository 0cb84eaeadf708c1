"""Finds the TPU and checks whether it answers, before TensorFlow is imported.

TensorFlow waits over two minutes for an address at which nothing listens, and cannot be
interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.addresses import Liveness, address_problem, probe

Environ = Mapping[str, str]

LOCAL = "local"
GRPC = "grpc://"
ALLOWED = "allowed: local, the name of a TPU, or its addresses, such as grpc://10.0.0.2:8470"
# Where TensorFlow looks for a TPU if none is named, in the same order.
VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
_PORT = "8470"
_SECONDS = 5.0


def find_tpu(runtime: RuntimeConfig, environ: Environ, devices: Path = Path("/dev")) -> str:
    """Returns the TPU to use: `local`, a name, or addresses; "" if no TPU is found.

    If `runtime.tpu` is empty, the environment variables of Google Cloud determine it, or else the
    device files of this machine, which are in `devices`.
    """
    names = (runtime.tpu, *(environ.get(variable) for variable in VARIABLES))
    name = next((name.strip() for name in names if name and name.strip()), "")
    return name or (LOCAL if _has_tpu(devices) else "")


def _has_tpu(devices: Path) -> bool:
    # TPU drivers expose a chip as /dev/accel0, and from v5e on as /dev/vfio/0.
    return any(devices.glob("accel[0-9]*")) or any(devices.glob("vfio/[0-9]*"))


def tpu_problems(runtime: RuntimeConfig, environ: Environ) -> Iterator[Problem]:
    """Yields why the TPU cannot be reached. The resolver looks up names, and reports wrong ones."""
    if not runtime.traits.uses_tpu:
        return
    name = find_tpu(runtime, environ)
    if not name:
        unset = " and ".join(VARIABLES)
        yield Problem(
            "runtime.tpu",
            f"is not set, {unset} are not set either, and this machine has no TPU\n{ALLOWED}",
            code="not-set",
        )
    for address in endpoints(name):
        problem = address_problem(address)
        if not problem and (state := probe(address, _SECONDS)) is not Liveness.ALIVE:
            problem = f"got {GRPC}{address}, but there is no TPU: {state.value}"
        if problem:
            yield Problem("runtime.tpu", f"{problem}\n{ALLOWED}", code="bad-path")
            return  # If the TPU is off, each other address would time out as well.


def endpoints(name: str) -> list[str]:
    """Returns the addresses, `host:port`, that the name of a TPU contains; [] if none."""
    if not name.startswith(GRPC):
        return []
    parts = [part.strip().removeprefix(GRPC).rstrip("/") for part in name.split(",")]
    return [part if ":" in part else f"{part}:{_PORT}" for part in parts]
