"""`Callback`: the base class of code that is called at the events of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Logs = Mapping[str, Any]
# A `train.run.Run`; the package of run directories, which that imports, has a callback of its own.
Run = Any


class Callback:
    """Base class of callbacks: its methods are called at the events of a run and do nothing.

    A config names callbacks by their class, with arguments for its constructor:

        callbacks:
        - my_package.StopAtAccuracy
        - class_name: my_package.SaveImages
          arguments: {directory: images}

    Each worker has callbacks of its own and calls them at the same steps with the same `logs`. What
    only one process may do, such as writing a file, belongs behind `if run.is_chief:`.

    A run that is resumed continues with the state that `get_state` returned when its checkpoint was
    saved, so a callback that keeps what it remembers there does the same with and without a
    restart.
    """

    def on_run_begin(self, run: Run) -> None:
        """Called once when model and state are there, restored or new, in every mode.

        Args:
            run: The run; `run.step` is above 0 where a checkpoint was restored.
        """

    def on_train_begin(self, run: Run) -> None:
        """Called once before the first step of training, also of a run that is finished already.

        Args:
            run: The run.
        """

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Called after each loop of steps.

        The length of a loop may depend on the speed of the machine (`trainer.steps_per_loop`).

        Args:
            run: The run; `run.step` is the last step of the loop.
            logs: Name to value: loss, metrics and learning rate, means since the last record.
        """

    def on_log(self, run: Run, logs: Logs) -> None:
        """Called every `trainer.summary_interval` steps, and at the last one.

        Args:
            run: The run.
            logs: Name to value: the means since the last call, or since the run was resumed.
        """

    def on_evaluate(self, run: Run, logs: Logs) -> None:
        """Called after each evaluation.

        Args:
            run: The run; `run.step` is the step of the weights.
            logs: Name to value, nested by task where several are evaluated.
        """

    def on_train_end(self, run: Run) -> None:
        """Called once at the end of training, when the last checkpoint is saved.

        A run that ends with an error or by a signal does not call it.

        Args:
            run: The run.
        """

    def get_state(self) -> Any:
        """Returns what the callback remembers, as JSON values; None where it remembers nothing.

        Called whenever a checkpoint is saved, and once before training.
        """
        return None

    def set_state(self, state: Any) -> None:
        """Restores what `get_state` returned when a checkpoint was saved.

        Called when a run is resumed, and when it returns to a checkpoint after training diverged.

        Args:
            state: What `get_state` returned; tuples are lists by then, as in JSON.
        """
