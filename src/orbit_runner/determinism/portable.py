"""Portable numerics: the same weights on every x86-64 processor with AVX2 and FMA.

`docs/reproducibility.md` describes what was measured. TensorFlow's own kernels are compiled for
AVX, so they compute the same everywhere. The exceptions are libraries that choose their code by
processor or by the sizes of its caches; `VARIABLES` and `block_sizes.py` fix their choice.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.errors import SettingError

SETTING = "runtime.numerics"
# What TensorFlow and its libraries read when they are imported or first used. An empty value has
# the same effect as a variable that is not set.
VARIABLES = {
    # oneDNN has different code for each instruction set.
    "TF_ENABLE_ONEDNN_OPTS": "0",
    # Without it, products of matrices use oneDNN even if it is off.
    "TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL": "0",
    # Some products use oneDNN in any case: the same code on every processor.
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "TF_SET_ONEDNN_FPMATH_MODE": "",
    # More threads split sums into more parts.
    "TF_NUM_INTRAOP_THREADS": "1",
    # They could compile parts of a step for this processor.
    "TF_XLA_FLAGS": "",
    "XLA_FLAGS": "",
}
# The code that the C library chooses for functions such as `exp` depends on them.
INSTRUCTION_SETS = ("avx2", "fma")
# Overrides the choice of the C library. It is read before Python starts.
_TUNABLES = "GLIBC_TUNABLES"


def processor_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Returns the flags that every core has; empty if the system does not list them."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    flags = [line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))]
    return set.intersection(*(set(line.split()) for line in flags)) if flags else set()


def machine_problem(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Returns why this machine cannot compute the same as others, or "" if it can."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return f"requires Linux on x86-64, but this is {sys.platform} on {platform.machine()}"
    if not os.access(cpuinfo, os.R_OK):
        return f"requires AVX2 and FMA, but {cpuinfo} cannot be read"
    flags = processor_flags(cpuinfo)
    missing = [name.upper() for name in INSTRUCTION_SETS if name not in flags]
    if missing:
        return f"requires AVX2 and FMA, but this processor has no {' and no '.join(missing)}"
    tunables = os.environ.get(_TUNABLES, "")
    if "hwcaps" in tunables:
        return f"requires that {_TUNABLES} does not set hwcaps, but it is {tunables!r}"
    return ""


def set_portable_variables(runtime: RuntimeConfig) -> None:
    """Sets `VARIABLES` if the numerics are portable.

    Must be called before TensorFlow is imported. Raises `SettingError` if it was imported with
    other values, or if this machine cannot compute the same as others.
    """
    if not runtime.is_portable:
        return
    problem = machine_problem()
    if problem:
        raise SettingError(
            SETTING, f"'portable' {problem}\nallowed here: 'native'", code="not-supported"
        )
    wrong = [name for name, value in VARIABLES.items() if os.environ.get(name, "") != value]
    if wrong and "tensorflow" in sys.modules:
        unset = [name for name in wrong if not VARIABLES[name]]
        words = [f"-u {name}" for name in unset]
        words += [f"{name}={VARIABLES[name]}" for name in wrong if name not in unset]
        raise SettingError(
            SETTING,
            "got 'portable', but TensorFlow was imported before, with other values of "
            f"{', '.join(wrong)}\n"
            f"set them when Python starts: env {' '.join(words)} python …",
            code="too-late",
        )
    os.environ.update(VARIABLES)


def c_library() -> str:
    """Returns the name and version of the C library, which computes functions such as `exp`."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (AttributeError, OSError, ValueError):
        return "unknown"


FILE = Path(__file__).with_name("published_fingerprints.json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """The weights at the end of a shipped experiment."""

    step: int
    weights: str  # SHA-256
    config: str  # fingerprint of the config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """The published fingerprints, and what they hold for."""

    numerics: Mapping[str, str]  # a record of `describe_numerics`
    runs: Mapping[str, PublishedRun]  # by the name of the experiment

    def versions(self) -> str:
        """Returns the versions that the fingerprints hold for, as a text."""
        names = ("tensorflow", "tf_keras", "tf-models-official", "numpy", "C library")
        versions = ((name, self.numerics[name]) for name in names if name in self.numerics)
        return ", ".join(
            text if name == "C library" else f"{name} {text}" for name, text in versions
        )


def read_published(path: Path = FILE) -> Published:
    """Returns the published fingerprints."""
    content = json.loads(path.read_text(encoding="utf-8"))
    runs = {name: PublishedRun(**run) for name, run in content["experiments"].items()}
    return Published(numerics=content["numerics"], runs=runs)
