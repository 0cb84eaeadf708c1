"""Common parts of the recipes for text: two steps, one device, tiny encoders."""

from __future__ import annotations

from typing import Any

Tree = dict[str, Any]

TRAINER: Tree = {
    "train_steps": 2,
    "validation_steps": 1,
    "validation_interval": 2,
    "checkpoint_interval": 2,
    "steps_per_loop": 1,
    "summary_interval": 1,
}
# These experiments do not set the lengths of warm-up and decay.
POLYNOMIAL: Tree = {
    "learning_rate": {"polynomial": {"decay_steps": 2}},
    "warmup": {"polynomial": {"warmup_steps": 1}},
}
RUNTIME: Tree = {
    "distribution_strategy": "one_device",
    "num_gpus": 0,
    "mixed_precision_dtype": "float32",
}

BATCH = 4
LENGTH = 32
HIDDEN = 16
ROWS = 8

SMALL_BERT: Tree = {
    "hidden_size": HIDDEN,
    "num_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": LENGTH,
}


def short_run_overrides(task: Tree, optimizer: Tree | None = None) -> Tree:
    """Returns overrides that train a task for two steps on one device.

    Args:
        task: The section `task`.
        optimizer: Overrides of `trainer.optimizer_config`.

    Returns:
        The sections `task`, `trainer` and `runtime`.
    """
    trainer = {**TRAINER, "optimizer_config": optimizer} if optimizer else dict(TRAINER)
    return {"task": task, "trainer": trainer, "runtime": dict(RUNTIME)}


def data(path: str, *, training: bool, length: int = LENGTH, **more: Any) -> Tree:
    """Returns the settings of a dataset whose examples all have the same length."""
    common = {"input_path": path, "is_training": training, "global_batch_size": BATCH}
    return {**common, "seq_length": length, **more}


def encoder(vocab: int, kind: str = "bert", **more: Any) -> Tree:
    """Returns the settings of a small encoder."""
    return {"type": kind, kind: {**SMALL_BERT, "vocab_size": vocab, **more}}
