"""Results of a loop or an evaluation, nested by task if there are several; numbers of an array."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# Keys of a record that are not values of a metric.
RECORD_KEYS = ("step", "split", "time", "event", "averaged_steps")
# Names and beginnings of names of values that the runner adds to the metrics of a task.
_OWN_VALUES = (
    "training_loss", "validation_loss", "validation_examples", "learning_rate", "steps_per_second",
    "tflops_per_second", "mfu", "best_ckpt_global_step",
)  # fmt: skip
_OWN_PREFIXES = ("system/", "training_")


def name_problem(name: str) -> str:
    """Returns why a metric, or a task with metrics, cannot have a name; "" if it can."""
    if name not in (*RECORD_KEYS, *_OWN_VALUES) and not name.startswith(_OWN_PREFIXES):
        return ""
    return (
        f"the name {name!r} is taken: records of a run contain {', '.join(RECORD_KEYS)}, "
        f"{', '.join(_OWN_VALUES)}, and values whose names begin with {', '.join(_OWN_PREFIXES)}"
    )


def summarize_array(
    values: np.ndarray,
) -> tuple[float | None, float | None, float | None, int, int]:
    """Returns the smallest, the largest and the mean finite value, and the counts of the others.

    The counts are those of NaN and of infinite values. Without a finite value, the others are None.
    """
    import numpy as np

    values = np.asarray(values, np.float64)
    finite = values[np.isfinite(values)]
    nan = int(np.isnan(values).sum())
    infinite = values.size - finite.size - nan
    if not finite.size:
        return None, None, None, nan, infinite
    return float(finite.min()), float(finite.max()), float(finite.mean()), nan, infinite


def flat_scalars(logs: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the scalars in nested results by name, such as `outer/inner`."""
    import numpy as np  # Not at the top, because readers of records need only the names above.

    flat: dict[str, object] = {}
    for key, value in logs.items():
        if isinstance(value, Mapping):
            flat.update(flat_scalars(value, f"{prefix}{key}/"))
        elif np.ndim(value) == 0:
            flat[f"{prefix}{key}"] = value
    return flat


def scalars(logs: Mapping[str, object]) -> dict[str, float]:
    """Returns the values in nested results that are plain numbers, by name as `flat_scalars`."""
    numbers = {}
    for name, value in flat_scalars(logs).items():
        with contextlib.suppress(TypeError, ValueError):
            numbers[name] = float(value)
    return numbers


def nested_scalars(logs: Mapping[str, object]) -> dict[str, object]:
    """Returns the scalars in nested results, with the same nesting."""
    nested = {
        name: nested_scalars(value) for name, value in logs.items() if isinstance(value, Mapping)
    }
    return {**{name: value for name, value in logs.items() if is_scalar(value)}, **nested}


def is_scalar(value: Any) -> bool:
    """Returns whether a value is a scalar."""
    import numpy as np

    return not isinstance(value, Mapping) and np.ndim(value) == 0
