"""Compares values of a metric, and checks that a metric exists."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from orbit_runner.errors import RunnerError, SettingError, unknown_name_message


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A metric and the direction in which it improves."""

    metric: str  # `a|b` is `b` in the nested results `a`
    higher: bool  # whether higher values are better

    def value(self, logs: Mapping[str, object]) -> float:
        """Returns the value of the metric in the results of an evaluation.

        Raises RunnerError if the metric is missing.
        """
        value: object = logs
        for name in self.metric.split("|"):
            if not isinstance(value, Mapping) or name not in value:
                known = list(value) if isinstance(value, Mapping) else []
                raise RunnerError(unknown_name_message("metric", self.metric, known))
            value = value[name]
        return float(value)  # type: ignore[arg-type]

    def is_better(self, value: float, than: float, by: float = 0.0) -> bool:
        """Returns whether a value is better than another by more than `by`.

        `than` is NaN if there is no other value yet. A value that is NaN or infinite is never
        better.
        """
        if not math.isfinite(value):
            return False
        if math.isnan(than):
            return True
        return value > than + by if self.higher else value < than - by


def require_metric(name: str, known: Sequence[str], setting: str) -> None:
    """Raises SettingError if evaluations do not report the metric that a setting names."""
    if name not in known:
        raise SettingError(setting, unknown_name_message("metric", name, known))
