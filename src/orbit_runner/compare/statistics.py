"""Means over seeds, their confidence intervals, and a test whether a difference could be chance.

Both are those of Student ("The probable error of a mean", Biometrika 6, 1908).

SciPy is imported where a number of it is needed, because most commands need none. `scipy.special`
is imported three times as fast as `scipy.stats`.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

# A difference is "more than chance" if its p-value is at most this. Intervals cover the rest.
SIGNIFICANCE = 0.05


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean and its spread."""

    count: int  # the number of values
    mean: float
    deviation: float | None  # sample standard deviation, with n - 1; None for one value

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean, by Student's t; None for one value."""
        if self.deviation is None:
            return None
        from scipy.special import stdtrit

        quantile = float(stdtrit(self.count - 1, 1 - SIGNIFICANCE / 2))
        margin = quantile * self.deviation / math.sqrt(self.count)
        return self.mean - margin, self.mean + margin


@dataclasses.dataclass(frozen=True)
class PairedTest:
    """Two samples with the same seeds, compared seed by seed."""

    difference: Estimate  # of second value - first value
    t: float  # Student's t; infinite if all differences are equal and not zero
    # The two-sided p-value of the paired t-test, which assumes normally distributed differences.
    p: float
    effect_size: float | None  # mean / deviation; None if all differences are equal

    @property
    def is_significant(self) -> bool:
        """Whether the difference is more than chance by the t-test, at 5 %."""
        return self.p <= SIGNIFICANCE


def estimate(values: Sequence[float]) -> Estimate:
    """Returns mean and spread of at least one finite value."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Estimate(len(values), statistics.fmean(values), deviation)


def paired_test(first: Sequence[float], second: Sequence[float]) -> PairedTest:
    """Compares two samples of finite values pair by pair. Raises ValueError for fewer than two."""
    differences = [after - before for before, after in zip(first, second, strict=True)]
    if len(differences) < 2:
        raise ValueError(f"got {len(differences)} pairs, allowed: at least 2")
    from scipy.special import stdtr

    difference = estimate(differences)
    if not difference.deviation:
        t = math.copysign(math.inf, difference.mean) if difference.mean else 0.0
    else:
        t = difference.mean / (difference.deviation / math.sqrt(difference.count))
    return PairedTest(
        difference=difference,
        t=t,
        p=2 * float(stdtr(difference.count - 1, -abs(t))),
        effect_size=difference.mean / difference.deviation if difference.deviation else None,
    )


def verdict(test: PairedTest) -> str:
    """Returns the result of a comparison as a sentence without a period.

    For example: `5 seeds: +0.012 [+0.004, +0.02], p = 0.01: more than chance at 5 %`.
    """
    count = test.difference.count
    difference = test.difference
    if not difference.mean and not difference.deviation:
        return f"{count} seeds: no difference for any seed"
    chance = "more than chance" if test.is_significant else "could be chance"
    return f"{count} seeds: {difference_text(difference)}, {p_text(test.p)}: {chance} at 5 %"


def difference_text(difference: Estimate) -> str:
    """Returns a mean difference and its interval, such as `+0.012 [+0.004, +0.02]`."""
    interval = difference.interval
    around = "" if interval is None else f" [{interval[0]:+.3g}, {interval[1]:+.3g}]"
    return f"{difference.mean:+.3g}{around}"


def estimate_text(estimated: Estimate) -> str:
    """Returns a mean and its standard deviation, such as `0.9713 ± 0.0021`."""
    if estimated.deviation is None:
        return f"{estimated.mean:.4g}"
    if not estimated.deviation:
        return f"{estimated.mean:.4g} ± 0"
    # As many decimals of the mean as the two digits of the deviation need.
    decimals = max(0, 1 - math.floor(math.log10(estimated.deviation)))
    if decimals > 9 or abs(estimated.mean) >= 1e9:
        return f"{estimated.mean:.6g} ± {estimated.deviation:.2g}"
    return f"{estimated.mean:.{decimals}f} ± {estimated.deviation:.{decimals}f}"


def interval_text(estimated: Estimate) -> str:
    """Returns the interval of a mean, such as `[0.969, 0.974]`; "" for one value."""
    interval = estimated.interval
    if interval is None:
        return ""
    width = interval[1] - interval[0]
    digits = 4
    if width > 0:
        largest = max(map(abs, interval))
        digits = min(9, max(3, 2 + math.floor(math.log10(largest)) - math.floor(math.log10(width))))
    return f"[{interval[0]:.{digits}g}, {interval[1]:.{digits}g}]"


def p_text(p: float) -> str:
    """Returns a p-value, such as `p = 0.012` or `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
