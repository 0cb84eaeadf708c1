"""The modes of a run."""

from __future__ import annotations

from orbit_runner.errors import RunnerError, unknown_name_message

TRAINING = ("train", "train_and_eval", "train_and_post_eval")
EVALUATING = ("eval", "train_and_eval", "continuous_eval", "train_and_post_eval")
MODES = ("train", "eval", "train_and_eval", "continuous_eval", "train_and_post_eval")
# A series of runs: one for each checkpoint that another run writes. See `jobs/finetune.py`.
FINE_TUNING = "continuous_train_and_eval"


def check_mode(mode: str) -> None:
    """Raises RunnerError if the mode is unknown."""
    if mode not in MODES:
        raise RunnerError(
            unknown_name_message("mode", mode, MODES), path="--mode", code="not-allowed"
        )
