"""Comparing values of a metric: which is better, and is the metric there at all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from orbit_runner.errors import RunnerError, SettingError, unknown


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A metric, and which of its values are better.

    Attributes:
        metric: Its name; `a|b` reads `b` in the nested results `a`.
        higher: Whether higher values are better.
    """

    metric: str
    higher: bool

    def value(self, logs: Mapping[str, object]) -> float:
        """Reads the metric from the result of an evaluation."""
        value: object = logs
        for name in self.metric.split("|"):
            if not isinstance(value, Mapping) or name not in value:
                known = list(value) if isinstance(value, Mapping) else []
                raise RunnerError(unknown("metric", self.metric, known))
            value = value[name]
        return float(value)  # type: ignore[arg-type]

    def is_better(self, value: float, than: float, by: float = 0.0) -> bool:
        """Returns whether a value beats another, which is NaN where there is none yet.

        A value that is NaN or infinite is not better than any other.
        """
        if not math.isfinite(value):
            return False
        if math.isnan(than):
            return True
        return value > than + by if self.higher else value < than - by


def require_metric(name: str, known: Sequence[str], setting: str) -> None:
    """Checks, before anything is trained, that an evaluation will give a metric.

    Args:
        name: The metric.
        known: The metrics that an evaluation gives.
        setting: The dotted path of the setting that names it.

    Raises:
        SettingError: It will not.
    """
    if name not in known:
        raise SettingError(setting, unknown("metric", name, known))
