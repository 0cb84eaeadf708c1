"""Student's t distribution, without SciPy, whose import takes longer than a whole command.

The p-value is a regularized incomplete beta function, computed by its continued fraction (NIST
Digital Library of Mathematical Functions, 8.17.4 and 8.17.22). The tests compare it with SciPy's.
"""

from __future__ import annotations

import functools
import math

_MOST_TERMS = 10_000
_TINY = 1e-300


def two_sided_p(t: float, freedom: int) -> float:
    """Returns the probability of a value at least as far from 0 as `t`."""
    if math.isinf(t):
        return 0.0
    return _beta(freedom / (freedom + t * t), freedom / 2, 0.5)


@functools.lru_cache(maxsize=256)
def critical_t(p: float, freedom: int) -> float:
    """Returns the positive `t` whose two-sided p-value is `p`."""
    low, high = 0.0, 1.0
    while two_sided_p(high, freedom) > p:
        low, high = high, 2 * high
    while True:
        middle = (low + high) / 2
        if middle in (low, high):  # No number is between them.
            return middle
        low, high = (middle, high) if two_sided_p(middle, freedom) > p else (low, middle)


def _beta(x: float, a: float, b: float) -> float:
    """Returns the regularized incomplete beta function for 0 <= x <= 1."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # There, the fraction converges slowly.
        return 1.0 - _beta(1 - x, b, a)
    log_factor = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_factor += a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_factor) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """Returns 1 + d1 / (1 + d2 / (1 + …)), from the first term on, by Lentz's method."""
    value = upper = 1.0
    lower = 0.0
    for term in range(1, _MOST_TERMS):
        half = term // 2
        if term % 2:
            numerator = -(a + half) * (a + b + half) / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            numerator = half * (b - half) / ((a + 2 * half - 1) * (a + 2 * half))
        lower = 1.0 / ((1.0 + numerator * x * lower) or _TINY)
        upper = (1.0 + numerator * x / upper) or _TINY
        value *= lower * upper
        if abs(lower * upper - 1.0) < 1e-15:
            break
    return value
