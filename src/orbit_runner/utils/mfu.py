"""The peak performance of devices, and the share of it that a run uses.

The numbers are for dense products, without sparsity, in TFLOP/s of one device. They are from
NVIDIA's data sheets of H200, H100, A100, L4, A10, V100 and T4. For float32, the number is that of
TF32 if the device supports it, because TensorFlow uses TF32.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

_HALF = ("bfloat16", "float16")
_FULL = ("float32",)
_PEAKS: tuple[tuple[str, dict[tuple[str, ...], float]], ...] = (
    (r"\bH200\b", {_HALF: 989.4, _FULL: 494.7}),
    (r"\bH100\b.*\bPCIe\b", {_HALF: 756.5, _FULL: 378.0}),
    (r"\bH100\b", {_HALF: 989.4, _FULL: 494.7}),
    (r"\bA100\b", {_HALF: 312.0, _FULL: 156.0}),
    (r"\bL4\b", {_HALF: 121.0, _FULL: 60.0}),
    (r"\bA10\b", {_HALF: 125.0, _FULL: 62.5}),
    (r"\bV100\b", {("float16",): 125.0, _FULL: 15.7}),
    (r"\bT4\b", {("float16",): 65.0, _FULL: 8.1}),
)


def peak_flops(device: str, dtype: str) -> float | None:
    """Returns the peak of a device in FLOP/s, or None if it is not known, as for CPUs.

    `device` is a name such as `NVIDIA H100 80GB HBM3`. `dtype` is that of the products.
    """
    for pattern, peaks in _PEAKS:
        if re.search(pattern, device):
            return next((1e12 * peak for kinds, peak in peaks.items() if dtype in kinds), None)
    return None


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Converts steps per second to FLOP/s and to model FLOPs utilization."""

    flops: int  # Operations per step, on all replicas.
    peak: float | None = None  # FLOP/s of all devices together; None if not known.

    def utilization(self, steps_per_second: float) -> float | None:
        """Returns the model FLOPs utilization, or None if the peak is not known.

        It is defined in Chowdhery et al., PaLM, 2022, appendix B.
        """
        return None if self.peak is None else self.flops * steps_per_second / self.peak

    def logs(self, steps_per_second: float) -> dict[str, float]:
        """Returns `tflops_per_second`, and `mfu` if the peak is known."""
        logs = {"tflops_per_second": self.flops * steps_per_second / 1e12}
        share = self.utilization(steps_per_second)
        return logs if share is None else {**logs, "mfu": share}


def peak_of(names: Sequence[str], dtype: str) -> float | None:
    """Returns the total peak of devices in FLOP/s, or None if one of them is not known."""
    peaks = [peak_flops(name, dtype) for name in names]
    return None if not peaks or None in peaks else sum(peak for peak in peaks if peak)


def format_si(number: float) -> str:
    """Returns a nonnegative number with the prefix of its size, such as `12.3 G`."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}"
    return f"{number:.3g} "
