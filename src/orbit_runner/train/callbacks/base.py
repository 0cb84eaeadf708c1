"""`Callback`: the base class for code that is called at the events of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Logs = Mapping[str, Any]
# A `train.run.Run`. Importing it here would be circular, because it imports callbacks.
Run = Any


class Callback:
    """Base class of callbacks. Its methods are called at the events of a run and do nothing.

    A config names callbacks by their class, with arguments for its constructor:

        callbacks:
        - my_package.StopAtAccuracy
        - class_name: my_package.SaveImages
          arguments: {directory: images}

    Each worker has its own callbacks and calls them at the same steps with the same `logs`. Code
    that only one process may execute, such as writing a file, belongs under `if run.is_chief:`.

    A resumed run passes the state that `get_state` returned when its checkpoint was saved to
    `set_state`. A callback that keeps all of its state there behaves the same with and without a
    restart.
    """

    def on_run_begin(self, run: Run) -> None:
        """Called once in every mode, after the model and its state are restored or initialized.

        Args:
            run: The run. `run.step` is greater than 0 if a checkpoint was restored.
        """

    def on_train_begin(self, run: Run) -> None:
        """Called once before the first training step, even if the run is already finished.

        Args:
            run: The run.
        """

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Called after each training loop.

        The length of a loop may depend on the speed of the machine (`trainer.steps_per_loop`).

        Args:
            run: The run. `run.step` is the last step of the loop.
            logs: Values by name: loss and metrics, averaged since the last record, and the learning
                rate.
        """

    def on_log(self, run: Run, logs: Logs) -> None:
        """Called every `trainer.summary_interval` steps, and at the last step.

        Args:
            run: The run.
            logs: Values by name, averaged since the last call or since the run was resumed.
        """

    def on_evaluate(self, run: Run, logs: Logs) -> None:
        """Called after each evaluation.

        Args:
            run: The run. `run.step` is the step of the evaluated weights.
            logs: Values by name, nested by task if several tasks are evaluated.
        """

    def on_train_end(self, run: Run) -> None:
        """Called once at the end of training, after the last checkpoint was saved.

        Not called if an error, a signal or `trainer.max_time` ends the run.

        Args:
            run: The run.
        """

    def get_state(self) -> Any:
        """Returns the state of the callback as JSON values, or None if it has no state.

        Called whenever a checkpoint is saved, and once before training.
        """
        return None

    def set_state(self, state: Any) -> None:
        """Restores the state that `get_state` returned when a checkpoint was saved.

        Called when a run is resumed, and when it returns to a checkpoint after training diverged.

        Args:
            state: The state. Tuples have become lists, as in JSON.
        """
