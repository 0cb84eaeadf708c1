"""Saving and restoring the state of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.training.state import TrainState


class Checkpoints:
    """The checkpoints of one run, in `<model_dir>/checkpoints`."""

    def __init__(
        self,
        state: TrainState,
        directory: Path,
        strategy: tf.distribute.Strategy,
        *,
        max_to_keep: int,
        asynchronous: bool = False,
    ) -> None:
        """Opens the folder.

        Args:
            state: What is saved.
            directory: The folder.
            strategy: In whose scope it is restored.
            max_to_keep: Checkpoints kept.
            asynchronous: Whether saving runs beside training.
        """
        self._state, self._strategy = state, strategy
        self._options = tf.train.CheckpointOptions(enable_async=asynchronous)
        self._checkpoint = state.checkpoint()
        self.manager = tf.train.CheckpointManager(
            self._checkpoint, str(directory), max_to_keep=max_to_keep
        )

    @property
    def latest(self) -> str | None:
        """The path of the newest checkpoint."""
        return self.manager.latest_checkpoint

    def restore_or_initialize(self, task: Any) -> str | None:
        """Restores the newest checkpoint, or hands a new model to the task.

        Args:
            task: Whose `initialize` may load weights from elsewhere.

        Returns:
            The path of the checkpoint; None where there was none.

        Raises:
            RunnerError: The checkpoint does not fit the model.
        """
        if self.latest is not None:
            self.restore(self.latest)
            return self.latest
        with self._strategy.scope():
            task.initialize(self._state.model)
            if self._state.ema is not None:
                self._state.ema.reset()
        return None

    def restore(self, path: str) -> None:
        """Restores one checkpoint.

        Args:
            path: The checkpoint, without suffix.

        Raises:
            RunnerError: It does not fit the model, or cannot be read.
        """
        try:
            with self._strategy.scope():
                status = self._checkpoint.restore(path)
                status.assert_existing_objects_matched()
        except (AssertionError, ValueError) as error:
            raise RunnerError(
                f"the checkpoint {path} does not fit this experiment: {first_line(error)}\n"
                "give another --model_dir, or the config that made it"
            ) from error
        except (IndexError, tf.errors.OpError) as error:
            raise RunnerError(
                f"the checkpoint {path} cannot be read: {first_line(error)}"
            ) from error

    def save(self) -> str | None:
        """Saves the state as it is at the global step, once a step.

        Returns:
            The path; None where that step is saved already.
        """
        step = int(self._state.global_step.numpy())
        if self.latest is not None and self.latest.endswith(f"-{step}"):
            return None
        return self.manager.save(
            checkpoint_number=step, check_interval=False, options=self._options
        )

    def sync(self) -> None:
        """Waits until the last save is on the disk."""
        self.manager.sync()
