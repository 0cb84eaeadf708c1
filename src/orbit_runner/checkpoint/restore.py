"""Restores a checkpoint into a run after checking that it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import (
    CheckpointContent,
    names_by_key,
    weights_fingerprint,
)
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.errors import RunnerError, first_line, format_list
from orbit_runner.state.train_state import TrainState
from orbit_runner.storage.paths import readable_path
from orbit_runner.tf_internals import object_graph

if TYPE_CHECKING:
    from orbit_runner.tf_internals import TrackableObjectGraph

# Variables of optimizers that hold a learning rate. The config determines it, and whether it is a
# variable: a schedule has none.
_LEARNING_RATES = ("learning_rate", "_learning_rate", "_current_learning_rate")
_SAVE_COUNTER = "save_counter"  # of TensorFlow, which creates it later


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
        self._options = tf.train.CheckpointOptions(experimental_io_device=io_device(checkpoint))
        # The config determines these, and may change them with --resume=override.
        self._hyperparameters = [(v, v.numpy()) for v in state.hyperparameters()]

    def restore(self, path: str, record: CheckpointRecord) -> None:
        """Restores one checkpoint.

        Raises `RunnerError` if the checkpoint does not fit the model or cannot be read.
        """
        self._check_assets(path, record)
        self._check_optimizer(path, record)
        try:
            saved_graph = CheckpointContent(path).graph
            _check_variables(path, record, object_graph(self._checkpoint), saved_graph)
            with self._strategy.scope():
                status = self._checkpoint.restore(readable_path(path), self._options)
        except ValueError as error:  # A variable has another shape.
            raise _mismatch(path, record, f"  {first_line(error)}") from error
        except (IndexError, tf.errors.OpError) as error:
            raise RunnerError(
                f"the checkpoint {path} cannot be read: {first_line(error)}\n"
                "use another --model_dir, or remove this checkpoint",
                code="damaged-checkpoint",
            ) from error
        status.expect_partial()  # Only learning rates may be left.
        self._compare_weights(path, record)
        for variable, value in self._hyperparameters:
            variable.assign(value)

    def _check_assets(self, path: str, record: CheckpointRecord) -> None:
        """Raises `RunnerError` if the checkpoint belongs to other classes or vocabularies."""
        if record.assets and self._state.assets != record.assets:
            raise RunnerError(
                f"the checkpoint {path} was trained with other assets (classes, vocabularies and "
                "the like) than this run has (SHA-256)\n"
                "restore the directory assets of the run from a copy, or use another --model_dir",
                code="other-assets",
            )

    def _check_optimizer(self, path: str, record: CheckpointRecord) -> None:
        """Raises an error for an optimizer of another kind, which would misread the slots."""
        if record.optimizer != self._state.optimizer_kind:
            raise RunnerError(
                f"the checkpoint {path} was saved with {record.optimizer}, but this experiment "
                f"uses {self._state.optimizer_kind}\n"
                "use another --model_dir; to begin with these weights, set task.init_checkpoint",
                path="trainer.optimizer_config.optimizer",
                code="checkpoint-mismatch",
            )

    def _compare_weights(self, path: str, record: CheckpointRecord) -> None:
        if weights_fingerprint(self._state.model) != record.weights:
            raise RunnerError(
                f"the weights restored from {path} differ from those that were saved (SHA-256)\n"
                "use another --model_dir, or the config that created the checkpoint",
                code="damaged-checkpoint",
            )


def _check_variables(
    path: str,
    record: CheckpointRecord,
    expected: TrackableObjectGraph,
    saved: TrackableObjectGraph,
) -> None:
    """Raises an error if a run and a checkpoint have other variables, except learning rates.

    TensorFlow's own error would print values instead of names.
    """
    model_variables = _required_variables(expected)
    saved_variables = _required_variables(saved)
    lines = [
        *(
            f"{model_variables[key]}: not in the checkpoint"
            for key in model_variables.keys() - saved_variables.keys()
        ),
        *(
            f"{saved_variables[key]}: only in the checkpoint"
            for key in saved_variables.keys() - model_variables.keys()
        ),
    ]
    if lines:
        raise _mismatch(path, record, format_list(sorted(lines)))


def _required_variables(graph: TrackableObjectGraph) -> dict[str, str]:
    """Returns the names of the variables that a run and a checkpoint must have, by their keys."""
    names = {}
    for key, name in names_by_key(graph).items():
        path = key.partition("/.ATTRIBUTES/")[0].split("/")
        is_learning_rate = path[0] == "optimizer" and path[-1] in _LEARNING_RATES
        if path[0] != _SAVE_COUNTER and not is_learning_rate:
            names[key] = name
    return names


def _mismatch(path: str, record: CheckpointRecord, lines: str) -> RunnerError:
    origin = f" (saved under {record.strategy})" if record.strategy else ""
    return RunnerError(
        f"the checkpoint {path}{origin} does not fit this experiment:\n{lines}\n"
        "use another --model_dir, or the config that created the checkpoint; to begin with its "
        "weights, set task.init_checkpoint",
        code="checkpoint-mismatch",
    )
