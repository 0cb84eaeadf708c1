"""Common parts of the recipes for vision."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

Overrides = dict[str, Any]
Recipe = Callable[[Path], Overrides]

_TRAINER = {
    "train_steps": 2,
    "validation_steps": 1,
    "validation_interval": 2,
    "checkpoint_interval": 2,
    "steps_per_loop": 1,
    "summary_interval": 1,
}
_RUNTIME = {
    "distribution_strategy": "one_device",
    "num_gpus": 0,
    "mixed_precision_dtype": "float32",
    # With XLA on a CPU, compiling a convolutional network takes longer than everything else.
    "enable_xla": False,
}
# For experiments that are registered without an optimizer.
SGD = {
    "optimizer_config": {
        "optimizer": {"type": "sgd", "sgd": {"momentum": 0.9}},
        "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.01}},
    }
}


def short_run_overrides(task: Overrides, trainer: Overrides | None = None) -> Overrides:
    """Returns sections for two training steps and one evaluation step of a task."""
    return {
        "task": task,
        "trainer": {**_TRAINER, **(trainer or {})},
        "runtime": dict(_RUNTIME),
    }


def data(path: str, batch: int = 2) -> Overrides:
    """Returns the settings of a data section that reads one file."""
    return {
        "input_path": path,
        "global_batch_size": batch,
        "shuffle_buffer_size": 4,
        "dtype": "float32",
    }


def merge_overrides(base: Overrides, top: Overrides) -> Overrides:
    """Merges two trees of overrides into a new one; the leaves of `top` take precedence."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            merged[key] = merge_overrides(below, value)
        else:
            merged[key] = value
    return merged


def recipe(make: Callable[..., Overrides], **settings: Any) -> Recipe:
    """Returns the recipe of one experiment: that of its family, with settings."""
    return functools.partial(make, **settings)
