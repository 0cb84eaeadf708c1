"""What devices can do at most, and the share of it that a run makes use of.

Dense products, without sparsity, in TFLOP/s of one device, from NVIDIA's data sheets of H200, H100,
A100, L4, A10, V100 and T4; float32 is that of TF32 where there is one, since TensorFlow uses it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

_HALF, _FULL = ("bfloat16", "float16"), ("float32",)
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
    """Returns what a device can do at most.

    Args:
        device: Its name, such as `NVIDIA H100 80GB HBM3`.
        dtype: The type of what is multiplied.

    Returns:
        Operations a second; None where nobody published it, as for CPUs.
    """
    for pattern, peaks in _PEAKS:
        if re.search(pattern, device):
            return next((1e12 * peak for kinds, peak in peaks.items() if dtype in kinds), None)
    return None


@dataclasses.dataclass(frozen=True)
class Work:
    """What steps compute.

    Attributes:
        flops: Operations of a step, on all replicas.
        peak: What all devices can do, operations a second; None where it is not known.
    """

    flops: int
    peak: float | None = None

    def utilisation(self, steps_per_second: float) -> float | None:
        """Returns the share of the peak: model FLOPs utilisation (PaLM, 2022, appendix B).

        Args:
            steps_per_second: The speed.
        """
        return None if self.peak is None else self.flops * steps_per_second / self.peak

    def logs(self, steps_per_second: float) -> dict[str, float]:
        """Returns what a record of training says of it.

        Args:
            steps_per_second: The speed.

        Returns:
            `tflops_per_second`, and `mfu` where the peak is known.
        """
        found = {"tflops_per_second": self.flops * steps_per_second / 1e12}
        share = self.utilisation(steps_per_second)
        return found if share is None else {**found, "mfu": share}


def peak_of(names: Sequence[str], dtype: str) -> float | None:
    """Returns what devices can do together, operations a second; None where one is not known.

    Args:
        names: Their names.
        dtype: The type of what is multiplied.
    """
    peaks = [peak_flops(name, dtype) for name in names]
    return None if not peaks or None in peaks else sum(peak for peak in peaks if peak)


def short(number: float) -> str:
    """Writes a number with the prefix of its size, such as `12.3 G`.

    Args:
        number: Not negative.
    """
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}"
    return f"{number:.3g} "
