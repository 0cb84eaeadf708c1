"""Finds the TPU and checks whether it answers, before TensorFlow is imported.

TensorFlow waits over two minutes for an address at which nothing listens, and cannot be
interrupted.
"""

from __future__ import annotations

import importlib.util
import json
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.addresses import address_problem, split_address

Environ = Mapping[str, str]

LOCAL = "local"
GRPC = "grpc://"
PATIENCE = 5.0  # Seconds for each address.
_METADATA_PATIENCE = 1.0  # The metadata server is on the machine itself.
# Where TensorFlow looks for a TPU if none is named, in the same order.
VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG")
_PORT = "8470"
_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_ALLOWED = "allowed: local, the name of a TPU, or its addresses, such as grpc://10.0.0.2:8470"
# The start of an HTTP/2 connection (RFC 9113, 3.4): the preface and an empty SETTINGS frame.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS = 4


def tpu_name(runtime: RuntimeConfig, environ: Environ) -> str:
    """Returns the TPU that is configured: `local`, a name, or addresses; "" if none is.

    If `runtime.tpu` is empty, the environment variables of Google Cloud determine it.
    """
    if runtime.tpu:
        return runtime.tpu.strip()
    for variable in VARIABLES[:2]:
        if variable in environ:
            return environ[variable].strip()
    try:
        return str(json.loads(environ.get(VARIABLES[2], "{}")).get("tpu_node_name") or "")
    except (ValueError, AttributeError):
        return ""


def find_tpu(runtime: RuntimeConfig, environ: Environ, devices: Path = Path("/dev")) -> str:
    """Returns the TPU to use, the configured one or else that of this machine.

    The result is `local`, a name, or addresses; "" if no TPU is found. `devices` is the directory
    of this machine's device files.
    """
    name = tpu_name(runtime, environ)
    return name or (LOCAL if _has_tpu(devices) or _is_tpu_vm(environ) else "")


def _has_tpu(devices: Path) -> bool:
    # TPU drivers expose a chip as /dev/accel0, and from v5e on as /dev/vfio/0.
    return any(devices.glob("accel[0-9]*")) or any(devices.glob("vfio/[0-9]*"))


def _is_tpu_vm(environ: Environ) -> bool:
    """Asks the metadata server of Google Cloud whether this machine is the host of a TPU."""
    import http.client  # Only here, because other runs do not need these imports.
    import urllib.request

    request = urllib.request.Request(
        f"http://{_metadata_host(environ)}/computeMetadata/v1/instance/attributes/accelerator-type",
        headers={"Metadata-Flavor": "Google"},
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=_METADATA_PATIENCE) as answer:
            return bool(answer.read(100).strip())
    except (OSError, ValueError, http.client.HTTPException):
        return False


def _metadata_host(environ: Environ) -> str:
    host = environ.get("GCE_METADATA_HOST") or environ.get("GCE_METADATA_IP")
    return host or "metadata.google.internal"


def endpoints(name: str) -> list[str]:
    """Returns the addresses, `host:port`, that the name of a TPU contains; [] if none."""
    if not name.startswith(GRPC):
        return []
    parts = [part.strip().removeprefix(GRPC).rstrip("/") for part in name.split(",")]
    return [part if ":" in part else f"{part}:{_PORT}" for part in parts]


def tpu_problems(runtime: RuntimeConfig, environ: Environ) -> Iterator[Problem]:
    """Yields why the TPU cannot be reached, as pairs of the setting and a message.

    Checks only what can be checked without TensorFlow.
    """
    if not runtime.traits.uses_tpu:
        return
    name = find_tpu(runtime, environ)
    if not name:
        unset = ", ".join(VARIABLES)
        yield Problem(
            "runtime.tpu",
            f"is not set, none of {unset} specifies a TPU, and this machine has none\n{_ALLOWED}",
            code="not-set",
        )
    elif name.startswith(GRPC):
        yield from _endpoint_problems(endpoints(name))
    elif name != LOCAL:
        yield from _name_problems(name, runtime, environ)


def _endpoint_problems(addresses: list[str]) -> Iterator[Problem]:
    malformed = False
    for address in addresses:
        problem = address_problem(address)
        if not problem and "[" in address:
            problem = f"got {address!r}, but TensorFlow does not accept IPv6 addresses of TPUs"
        if problem:
            malformed = True
            yield Problem("runtime.tpu", f"{problem}\n{_ALLOWED}", code="bad-path")
    if malformed:
        return
    for address in addresses:
        problem = reach_problem(address)
        if problem:
            yield Problem("runtime.tpu", f"got {GRPC}{address}, but {problem}", code="bad-path")
            return  # If the TPU is off, each other address would time out as well.


def reach_problem(address: str, patience: float = PATIENCE) -> str:
    """Returns why nothing that speaks gRPC answers at `host:port`; "" if something does.

    Waits up to `patience` seconds for an answer.
    """
    try:
        with socket.create_connection(split_address(address), timeout=patience) as connection:
            connection.sendall(_HELLO)
            with connection.makefile("rb") as stream:
                frame = stream.read(4)  # Three bytes of length, one of the frame type.
    except TimeoutError:
        return f"it does not respond within {patience:g} s"
    except (OSError, UnicodeError) as error:
        return f"it cannot be reached: {getattr(error, 'strerror', None) or error}"
    if frame[3:] != bytes((_SETTINGS,)):
        return "it is not a gRPC server"
    return ""


def _name_problems(name: str, runtime: RuntimeConfig, environ: Environ) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        hint = f"; did you mean {GRPC}{name}?" if re.search(r"[.:]", name) else ""
        yield Problem(
            "runtime.tpu",
            f"got {name!r}, which is not a valid TPU name{hint}\n{_ALLOWED}",
            code="bad-path",
        )
        return
    for module in ("googleapiclient", "oauth2client"):
        if importlib.util.find_spec(module) is None:
            yield Problem(
                "runtime.tpu",
                f"got the name {name!r}, but looking it up requires the package {module}\n"
                "install cloud-tpu-client, or set the address: grpc://…",
                code="missing-package",
            )
            return
    missing = [
        f"tpu_{field}" for field in ("zone", "project") if not _is_known(field, runtime, environ)
    ]
    if missing and not _is_in_google_cloud(environ):
        yield Problem(
            f"runtime.{missing[0]}",
            f"is not set, and cannot be detected, because this machine is not in Google Cloud\n"
            f"set {' and '.join(f'runtime.{field}' for field in missing)}",
            code="not-set",
        )


def _is_known(field: str, runtime: RuntimeConfig, environ: Environ) -> bool:
    if getattr(runtime, f"tpu_{field}"):
        return True
    # TensorFlow reads the rest of this variable only if it takes the name from it as well.
    named = runtime.tpu or any(variable in environ for variable in VARIABLES[:2])
    try:
        return not named and bool(json.loads(environ.get(VARIABLES[2], "{}")).get(field))
    except (ValueError, AttributeError):
        return False


def _is_in_google_cloud(environ: Environ) -> bool:
    address = _metadata_host(environ)
    try:
        host_and_port = split_address(address if ":" in address else f"{address}:80")
        with socket.create_connection(host_and_port, timeout=PATIENCE):
            return True
    except (OSError, ValueError, UnicodeError):
        return False
