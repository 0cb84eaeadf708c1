"""What determines the bits of the weights besides the config: machine, environment, versions.

Each entry was observed to change the weights of a small network, or is read by the code that
computes them. These are not included, because they changed nothing on a CPU with AVX-512: inter-op
threads, threads of input pipelines, `OMP_NUM_THREADS`, `MKL_NUM_THREADS`,
`ONEDNN_DEFAULT_FPMATH_MODE`, `ONEDNN_CPU_ISA_HINTS`, `TF_USE_DEEP_CONV2D`, `TF_ENABLE_ONEDNN_SPMM`,
`TF_ENABLE_MAXPOOL_NANPROP`, `TF_USE_EIGEN_PARALLEL_FOR_IN_WORK_SHARDER`,
`TF_OVERRIDE_GLOBAL_THREADPOOL`.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism import portable

XLA_FLAGS = "TF_XLA_FLAGS"
XLA_CACHE = "--tf_xla_persistent_cache_"  # what begins the flags of the cache
_PACKAGES = ("tensorflow", "tf_keras", "tf-models-official", "numpy")
# Used by some runs: `TaskData.packages` and the model of a run say which.
KERAS_3 = "keras"
SCIPY = "scipy"
SENTENCEPIECE = "sentencepiece"
_PACKAGES_OF_SOME_RUNS = (KERAS_3, SCIPY, SENTENCEPIECE)
_PACKAGES_ON_GPUS = ("nvidia-cublas-cu12", "nvidia-cudnn-cu12")
# Read by TensorFlow and XLA regardless of the config.
_VARIABLES = (
    "XLA_FLAGS",
    XLA_FLAGS,
    # Selects the kernel that multiplies blocks of matrices, if oneDNN is off.
    "TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL",
    # Allows float32 products to be computed in bfloat16.
    "TF_SET_ONEDNN_FPMATH_MODE",
    # Overrides which code the C library chooses for functions such as `exp`.
    "GLIBC_TUNABLES",
)
_WITHOUT_DETERMINISM = ("TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC")
# Read by cuDNN, cuBLAS and the TensorFlow kernels that use them: the algorithms that are allowed,
# their memory, and the precision of their sums.
_ON_GPUS = (
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
    "TF_CONV2D_USE_FP16_ACCUMULATE",
    "TF_CUBLAS_WORKSPACE_LIMIT_IN_MB",
    "TF_CUDNN_DISABLE_CONV_1X1_OPTIMIZATION",
    "TF_CUDNN_USE_AUTOTUNE",
    "TF_CUDNN_USE_RUNTIME_FUSION",
    "TF_CUDNN_WORKSPACE_LIMIT_IN_MB",
    "TF_FP16_CONV_USE_FP32_COMPUTE",
    "TF_FP16_MATMUL_USE_FP32_COMPUTE",
    "TF_MATMUL_AUTOTUNE_ENABLE",
    "TF_USE_CUBLASLT",
    "TF_USE_DEFAULT_CONV_ALGO",
)
_THREADS = "intra-op threads"
_ONEDNN = "oneDNN"
_CAP = "oneDNN instruction cap"
_XLA = "XLA"
_PROCESSOR = "processor"
_UNSET = "not set"
_ABSENT = "not installed"
_INSTRUCTION_SETS = re.compile(
    r"f16c|fma\w*|avx\w*|amx\w*|asimd\w*|neon|sve\w*|sme2?|bf16|i8mm"  # x86, then Arm
)
# The x86 instruction sets with which TensorFlow enables oneDNN (`IsMklEnabled` in `port.cc`).
_ONEDNN_DEFAULT_SETS = {
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
}


def describe_numerics(
    runtime: RuntimeConfig, packages: Iterable[str] = _PACKAGES_OF_SOME_RUNS
) -> dict[str, str]:
    """Returns what the weights depend on besides the config, as strings by name.

    Imports neither TensorFlow nor the packages. `describe_changes` compares two such records.

    Args:
        runtime: The settings of the runtime.
        packages: Packages to describe besides those that every run uses. A record of a run has
            those that the run uses, so that a new version of another package is not a change.
    """
    if runtime.is_portable:
        return _portable_record(packages)
    sets = _instruction_sets()
    return {
        _THREADS: str(intra_op_threads(runtime)),
        _ONEDNN: _onednn_state(sets),
        # Also applies if oneDNN is off, because Eigen's matrix products call its kernels.
        _CAP: _read_variable("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"),
        _PROCESSOR: " ".join([platform.machine(), *sorted(sets)]),
        "caches": ", ".join(_caches()) or "unknown",
        _XLA: "on" if runtime.enable_xla else "off",
        **{name: _read_variable(name) for name in _VARIABLES},
        **_conditional_variables(runtime),
        **_versions(packages),
    }


def _portable_record(packages: Iterable[str]) -> dict[str, str]:
    """Returns the record of portable numerics: what `portable` sets, whatever the machine has."""
    return {
        _THREADS: "1",
        _ONEDNN: "off",
        _CAP: portable.VARIABLES["ONEDNN_MAX_CPU_ISA"],
        # The least that it requires.
        _PROCESSOR: " ".join(["x86_64", *portable.INSTRUCTION_SETS]),
        _XLA: "off",
        **{name: portable.VARIABLES.get(name) or _UNSET for name in _VARIABLES},
        **_versions(packages),
    }


def _versions(packages: Iterable[str]) -> dict[str, str]:
    return {
        **{package: version_of(package) for package in (*_PACKAGES, *packages)},
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "C library": portable.c_library(),
    }


def describe_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns one line per difference between two records, with the setting that would undo it.

    For example: `intra-op threads: 4 → 2 (set runtime.intra_op_threads=4)`. Entries that only one
    record has are ignored, such as those about GPUs.
    """
    return [
        f"{name}: {_describe_change(name, before[name], value)}{_remedy(name, before[name])}"
        for name, value in now.items()
        if name in before and before[name] != value
    ]


def _describe_change(name: str, before: str, now: str) -> str:
    if name != _PROCESSOR:
        return f"{before} → {now}"
    left, right = before.split(), now.split()
    gone = [word for word in left if word not in right]
    new = [word for word in right if word not in left]
    words = [(gone, "no longer has"), (new, "now has")]
    return "; ".join(f"{verb} {' '.join(changed)}" for changed, verb in words if changed)


def _remedy(name: str, before: str) -> str:
    if name == _THREADS:
        return f" (set runtime.intra_op_threads={before})"
    if name == _XLA:
        return f" (set runtime.enable_xla={str(before == 'on').lower()})"
    if name == _ONEDNN and before in ("on", "off"):
        return f" (set TF_ENABLE_ONEDNN_OPTS={int(before == 'on')})"
    if name in (_CAP, *_VARIABLES, *_WITHOUT_DETERMINISM, *_ON_GPUS):
        variable = "ONEDNN_MAX_CPU_ISA" if name == _CAP else name
        is_set = f"set {variable}={shlex.quote(before)}"
        return f" (unset {variable})" if before == _UNSET else f" ({is_set})"
    packages = (*_PACKAGES, *_PACKAGES_OF_SOME_RUNS, *_PACKAGES_ON_GPUS)
    if name in packages and before != _ABSENT:
        return f" (install {name}=={before})"
    return ""


def environment_of(numerics: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the environment variables that give a new process the numerics of a record.

    None stands for a variable that must not be set.
    """
    environment: dict[str, str | None] = {}
    if _THREADS in numerics:
        environment["TF_NUM_INTRAOP_THREADS"] = numerics[_THREADS]
    if numerics.get(_ONEDNN) in ("on", "off"):
        environment["TF_ENABLE_ONEDNN_OPTS"] = str(int(numerics[_ONEDNN] == "on"))
    if _CAP in numerics:
        environment |= {
            "ONEDNN_MAX_CPU_ISA": _value_to_set(numerics[_CAP]),
            "DNNL_MAX_CPU_ISA": None,
        }
    for name in (*_VARIABLES, *_WITHOUT_DETERMINISM, *_ON_GPUS):
        if name in numerics:
            environment[name] = _value_to_set(numerics[name])
    return environment


def _value_to_set(recorded: str) -> str | None:
    return None if recorded == _UNSET else recorded


def intra_op_threads(runtime: RuntimeConfig) -> int:
    """Returns the number of threads that an op uses: as set, or one per visible core."""
    if runtime.intra_op_threads:
        return runtime.intra_op_threads
    setting = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    if setting.strip().isdecimal() and int(setting):
        return int(setting)
    return available_cores()


def available_cores() -> int:
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _onednn_state(sets: set[str]) -> str:
    setting = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower()
    if setting in ("0", "false", "1", "true"):
        return "on" if setting in ("1", "true") else "off"
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return "on" if sets & _ONEDNN_DEFAULT_SETS else "off"
    return "the platform's default"


def _instruction_sets(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Returns the sets that every core has; empty if the system does not list them."""
    return {name for name in portable.processor_flags(cpuinfo) if _INSTRUCTION_SETS.fullmatch(name)}


def _caches(directory: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> Iterator[str]:
    # Eigen and oneDNN split matrices into blocks that fit into the caches, and sum by block.
    for cache in sorted(directory.glob("index*")):
        kind, level, size = (
            "".join(_read_lines(cache / name)) for name in ("type", "level", "size")
        )
        if kind != "Instruction":
            yield f"L{level} {size}"


def _conditional_variables(runtime: RuntimeConfig) -> dict[str, str]:
    names = () if runtime.deterministic else _WITHOUT_DETERMINISM
    if not runtime.num_gpus:
        return {name: _read_variable(name) for name in names}
    values = {name: _read_variable(name) for name in (*names, *_ON_GPUS)}
    versions = {package: version_of(package) for package in _PACKAGES_ON_GPUS}
    return {"GPU": _gpus(runtime.num_gpus), **values, **versions}


def _gpus(num_gpus: int, directory: Path = Path("/proc/driver/nvidia/gpus")) -> str:
    """Returns the GPU models, and their number if the config does not set it."""
    models = [
        line.partition(":")[2].strip()
        for file in sorted(directory.glob("*/information"))
        for line in _read_lines(file)
        if line.startswith("Model:")
    ]
    names = ", ".join(sorted(set(models))) or "unknown"
    if num_gpus > 0:
        return names
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(models) if visible is None else len(list(filter(None, visible.split(","))))
    return f"{count} × {names}"


def _read_variable(*names: str) -> str:
    values = (" ".join(read_words(name)) for name in names)
    return next(filter(None, values), _UNSET)


def read_words(name: str) -> list[str]:
    """Returns the words in an environment variable, without the flags of the cache of XLA."""
    words = os.environ.get(name, "").split()
    return [word for word in words if name != XLA_FLAGS or not word.startswith(XLA_CACHE)]


def version_of(package: str) -> str:
    """Returns the installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return _ABSENT


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
