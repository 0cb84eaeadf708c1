"""What the recipes of all vision experiments have in common."""

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
    # Compiling a convolutional net with XLA on a CPU takes longer than all else together.
    "enable_xla": False,
}
# For the experiments that are registered bare, without an optimizer.
SGD = {
    "optimizer_config": {
        "optimizer": {"type": "sgd", "sgd": {"momentum": 0.9}},
        "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.01}},
    }
}


def short(task: Overrides, trainer: Overrides | None = None) -> Overrides:
    """Adds the two steps of training and the one of evaluation.

    Args:
        task: Overrides of the task.
        trainer: Further overrides of the trainer.

    Returns:
        Overrides of task, trainer and runtime.
    """
    return {
        "task": task,
        "trainer": {**_TRAINER, **(trainer or {})},
        "runtime": dict(_RUNTIME),
    }


def data(path: str, batch: int = 2) -> Overrides:
    """Names one file of examples as the input.

    Args:
        path: The file.
        batch: Global batch size.

    Returns:
        Overrides of `train_data` or `validation_data`.
    """
    return {
        "input_path": path,
        "global_batch_size": batch,
        "shuffle_buffer_size": 4,
        "dtype": "float32",
    }


def over(base: Overrides, top: Overrides) -> Overrides:
    """Lays one tree of overrides over another.

    Args:
        base: The lower tree.
        top: The upper tree, whose leaves win.

    Returns:
        A new tree.
    """
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            merged[key] = over(below, value)
        else:
            merged[key] = value
    return merged


def recipe(make: Callable[..., Overrides], **settings: Any) -> Recipe:
    """Binds the settings of one experiment to the recipe of its family.

    Args:
        make: The family's recipe; takes the folder and the settings.
        **settings: The settings.

    Returns:
        The experiment's recipe.
    """
    return functools.partial(make, **settings)
