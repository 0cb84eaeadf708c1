"""Restores a checkpoint into a run, once it is known to fit."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.errors import RunnerError, first_line, listed
from orbit_runner.runtime.coordinator import io_device
from orbit_runner.training.checkpoint_match import Match, match
from orbit_runner.training.checkpoint_record import CheckpointRecord
from orbit_runner.training.fingerprint import CheckpointContent, weights_fingerprint
from orbit_runner.training.observer import Observer
from orbit_runner.training.shards import hold_slots
from orbit_runner.training.state import TrainState


class Restorer:
    """Puts the values of checkpoints into the variables of a run."""

    def __init__(
        self,
        state: TrainState,
        checkpoint: tf.train.Checkpoint,
        strategy: tf.distribute.Strategy,
        observer: Observer,
        *,
        partly: bool,
    ) -> None:
        """Makes it ready.

        Args:
            state: What is restored.
            checkpoint: The same as TensorFlow takes it.
            strategy: In whose scope it is restored.
            observer: Hears what was left out.
            partly: Whether a checkpoint may fit in part.
        """
        self._state, self._checkpoint, self._strategy = state, checkpoint, strategy
        self._observer, self._partly = observer, partly
        hold_slots(state.optimizer)
        self._options = tf.train.CheckpointOptions(experimental_io_device=io_device(checkpoint))
        # The config says what these are, and may say something new with --resume=override.
        self._hyperparameters = [(v, v.numpy()) for v in state.hyperparameters()]

    def restore(self, path: str, record: CheckpointRecord | None) -> None:
        """Restores one checkpoint.

        Args:
            path: The checkpoint, without suffix.
            record: What is known of it.

        Raises:
            RunnerError: It does not fit the model, or cannot be read.
        """
        try:
            content = CheckpointContent(path)
            found = match(self._items(record), content)
            if found.complete:
                with self._strategy.scope():
                    status = self._checkpoint.restore(path, self._options)
                    status.assert_existing_objects_matched()
                self._compare_weights(path, record)
            elif self._partly:
                self._restore_pairs(found, content)
            else:
                raise RunnerError(_misfit(path, found, record))
        except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:
            raise RunnerError(
                f"the checkpoint {path} cannot be read: {first_line(error)}\n"
                "give another --model_dir, or remove that checkpoint"
            ) from error
        for variable, value in self._hyperparameters:
            variable.assign(value)

    def _items(self, record: CheckpointRecord | None) -> dict[str, Any]:
        """Returns what is restored; another kind of optimizer would read its slots as its own."""
        items, kind = self._state.items(), self._state.optimizer_kind
        if record is None or not record.optimizer or record.optimizer == kind:
            return items
        if not self._partly:
            raise RunnerError(
                f"trainer.optimizer_config.optimizer: the checkpoint of step {record.step} was "
                f"made with {record.optimizer}, this experiment has {kind}\n"
                "give another --model_dir, or --allow-partial to start with a new optimizer"
            )
        del items["optimizer"]
        return items

    def _restore_pairs(self, found: Match, content: CheckpointContent) -> None:
        # Layers and slots are numbered: where a model has changed, a number stands for another.
        pairs = [pair for pair in found.pairs if pair.names[0] == pair.names[1]]
        with self._strategy.scope():
            for pair in pairs:
                pair.variable.assign(content.tensor(pair.key))
        others = [
            f"{pair.path} ({pair.names[0]}): {pair.names[1]} in the checkpoint"
            for pair in found.pairs
            if pair.names[0] != pair.names[1]
        ]
        left_out = listed([*found.missing, *found.unused, *others])
        self._observer.note(f"restored {len(pairs)} variables; left out:\n{left_out}")

    def _compare_weights(self, path: str, record: CheckpointRecord | None) -> None:
        if record is not None and weights_fingerprint(self._state.model) != record.weights:
            raise RunnerError(
                f"the weights restored from {path} are not those that were saved (SHA-256)\n"
                "give another --model_dir, or the config that made it"
            )


def _misfit(path: str, found: Match, record: CheckpointRecord | None) -> str:
    lines = listed([*found.missing, *found.unused])
    made = f" (made under {record.strategy})" if record and record.strategy else ""
    return (
        f"the checkpoint {path}{made} does not fit this experiment:\n{lines}\n"
        "give another --model_dir, the config that made it, or --allow-partial to restore the rest"
    )
