"""Restores a checkpoint into a run after checking that it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.checkpoint.compatibility import (
    Match,
    has_inner_optimizer,
    is_model_gardens,
    kind_of,
    match_variables,
    saved_optimizer_kind,
)
from orbit_runner.checkpoint.fingerprint import CheckpointContent, weights_fingerprint
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.errors import CheckpointMismatch, RunnerError, first_line, format_list
from orbit_runner.state.ema import RECOVERIES
from orbit_runner.state.train_state import TrainState
from orbit_runner.storage.paths import readable_path
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.tf_internals import Trackable


def io_device(checkpoint: tf.train.Checkpoint) -> str | None:
    """Returns the device that writes and reads a checkpoint, or None for TensorFlow's choice.

    TensorFlow would choose the parameter servers if they hold variables, but they may not see the
    directory, or see it under another path.
    """
    descendants = tf.train.TrackableView(checkpoint).descendants()
    served = any("/job:ps" in str(getattr(variable, "device", "")) for variable in descendants)
    return "/job:chief/replica:0/task:0/device:CPU:0" if served else None


class Restorer:
    """Assigns the values of checkpoints to the variables of a run."""

    def __init__(
        self,
        state: TrainState,
        checkpoint: tf.train.Checkpoint,
        strategy: tf.distribute.Strategy,
    ) -> None:
        self._state = state
        self._checkpoint = checkpoint
        self._strategy = strategy
        self._default_items = state.items()
        self._options = tf.train.CheckpointOptions(experimental_io_device=io_device(checkpoint))
        # The config determines these, and may change them with --resume=override.
        self._hyperparameters = [(v, v.numpy()) for v in state.hyperparameters()]

    def restore(self, path: str, record: CheckpointRecord | None) -> None:
        """Restores one checkpoint.

        `record` is None for Model Garden's checkpoints. Raises `RunnerError` if the checkpoint does
        not fit the model or cannot be read.
        """
        self._check_assets(path, record)
        try:
            content = CheckpointContent(path)
            items = self._items(path, content, record)
            # Model Garden's runner creates slots at the first gradient, this one at the start.
            match = match_variables(items, content, allow_missing_slots=record is None)
            if not match.is_complete:
                raise CheckpointMismatch(_describe_mismatch(path, match, record))
            self._restore_whole(path, items, match)
            self._compare_weights(path, record)
        except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:
            raise RunnerError(
                f"the checkpoint {path} cannot be read: {first_line(error)}\n"
                "use another --model_dir, or remove this checkpoint",
                code="damaged-checkpoint",
            ) from error
        for variable, value in self._hyperparameters:
            variable.assign(value)
        if is_model_gardens(content):
            note(_describe_model_garden_restore(path, match))

    def _check_assets(self, path: str, record: CheckpointRecord | None) -> None:
        """Raises `RunnerError` if the checkpoint belongs to other classes or vocabularies."""
        saved = record.assets if record else ""
        current = self._state.assets
        if saved and current != saved:
            raise RunnerError(
                f"the checkpoint {path} was trained with other assets (classes, vocabularies and "
                "the like) than this run has (SHA-256)\n"
                "restore the directory assets of the run from a copy, or use another --model_dir",
                code="other-assets",
            )

    def _items(
        self, path: str, content: CheckpointContent, record: CheckpointRecord | None
    ) -> dict[str, Trackable]:
        """Returns the objects to restore, arranged as in the checkpoint."""
        saved_with = self._other_optimizer(content, record)
        if saved_with:  # An optimizer of another kind would read the slots as its own.
            raise CheckpointMismatch(
                f"the checkpoint {path} was saved with {saved_with}, but this experiment uses "
                f"{self._state.optimizer_kind}\n"
                "use another --model_dir; to begin with these weights, set task.init_checkpoint",
                path="trainer.optimizer_config.optimizer",
            )
        items = self._state.items(ema_in_optimizer=has_inner_optimizer(content))
        if is_model_gardens(content):
            del items[RECOVERIES]
        return items

    def _other_optimizer(self, content: CheckpointContent, record: CheckpointRecord | None) -> str:
        """Returns the optimizer kind of a checkpoint, or "" if the run has the same kind."""
        if record is not None and record.optimizer:
            return "" if record.optimizer == self._state.optimizer_kind else record.optimizer
        there = saved_optimizer_kind(content)
        here = kind_of(self._state.optimizer)
        if there is None or (there.is_legacy == here.is_legacy and there.name in ("", here.name)):
            return ""
        return str(there)

    def _restore_whole(self, path: str, items: dict[str, Trackable], match: Match) -> None:
        with self._strategy.scope():
            status = self._checkpoint_of(items).restore(readable_path(path), self._options)
            if not match.uncreated_slots and not match.rates:
                status.assert_existing_objects_matched()
                return
            # TensorFlow would report the slots and learning rates as missing.
            status.expect_partial()
            if match.uncreated_slots and self._state.ema is not None:
                self._state.ema.reset(kept=[pair.variable for pair in match.pairs])

    def _checkpoint_of(self, items: dict[str, Trackable]) -> tf.train.Checkpoint:
        is_default = items.keys() == self._default_items.keys()
        if is_default and type(items["optimizer"]) is type(self._default_items["optimizer"]):
            return self._checkpoint
        return tf.train.Checkpoint(**items)

    def _compare_weights(self, path: str, record: CheckpointRecord | None) -> None:
        if record is not None and weights_fingerprint(self._state.model) != record.weights:
            raise RunnerError(
                f"the weights restored from {path} differ from those that were saved (SHA-256)\n"
                "use another --model_dir, or the config that created the checkpoint",
                code="damaged-checkpoint",
            )


def _describe_mismatch(path: str, match: Match, record: CheckpointRecord | None) -> str:
    lines = format_list([*match.missing, *match.unused])
    origin = f" (saved under {record.strategy})" if record and record.strategy else ""
    matched = (
        f"variables that fit: {match.format_counts()}" if match.pairs else "nothing in it fits"
    )
    return (
        f"the checkpoint {path}{origin} does not fit this experiment ({matched}):\n{lines}\n"
        "use another --model_dir, or the config that created the checkpoint; to begin with its "
        "weights, set task.init_checkpoint"
    )


def _describe_model_garden_restore(path: str, match: Match) -> str:
    lines = [
        f"note: {path} is a Model Garden checkpoint; variables restored: {match.format_counts()}",
        "the best result, early stopping and the number of recoveries start over",
    ]
    if match.uncreated_slots:
        lines += ["not in the checkpoint, so initialized:", format_list(match.uncreated_slots)]
    return "\n".join(lines)
