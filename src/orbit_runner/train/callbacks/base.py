"""`Callback`, the base class for code that is called at the events of a run, and lists of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from orbit_runner.config.schema.plugins import CallbackConfig
from orbit_runner.config.serialize import plain_value
from orbit_runner.errors import RunnerError
from orbit_runner.utils.user_code import load_class

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


Logs = Mapping[str, Any]
SomeCallback = TypeVar("SomeCallback", bound="Callback")


# What callbacks get: a `train.run.Run`, whose module imports this one.
RunView: TypeAlias = Any


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

    # Why the config may not reproduce a run with this object; "" if the config names it.
    inexact_reason = ""

    def on_run_begin(self, run: RunView) -> None:
        """Called once in every mode, after the model and its state are restored or initialized.

        Args:
            run: The run. `run.step` is greater than 0 if a checkpoint was restored.
        """

    def on_train_begin(self, run: RunView) -> None:
        """Called once before the first training step, even if the run is already finished.

        Args:
            run: The run.
        """

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Called after each training loop.

        The length of a loop may depend on the speed of the machine (`trainer.steps_per_loop`).

        Args:
            run: The run. `run.step` is the last step of the loop.
            logs: Values by name: loss and metrics, averaged since the last record, and the learning
                rate.
        """

    def on_log(self, run: RunView, logs: Logs) -> None:
        """Called every `trainer.summary_interval` steps, and at the last step.

        Args:
            run: The run.
            logs: Values by name, averaged since the last call or since the run was resumed.
        """

    def on_evaluate_begin(self, run: RunView) -> None:
        """Called before each evaluation.

        Args:
            run: The run. `run.step` is the step of the weights to evaluate.
        """

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Called after each evaluation.

        Args:
            run: The run. `run.step` is the step of the evaluated weights.
            logs: Values by name, nested by task if several tasks are evaluated.
        """

    def on_last_step(self, run: RunView) -> bool:
        """Called at the end of training, before the last checkpoint is saved.

        Args:
            run: The run. `run.step` is the last step, or that at which a callback stopped the run.

        Returns:
            Whether the callback has changed the weights, so that they are evaluated again.
        """
        return False

    def on_train_end(self, run: RunView) -> None:
        """Called once at the end of training, after the last checkpoint was saved.

        Not called if an error or a signal ends the run.

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


class CallbackList:
    """Calls several callbacks in order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = tuple(callbacks)
        # Whether records of training are to be averages since the last evaluation was due.
        self.averages_epochs = any(getattr(cb, "averages_epochs", False) for cb in callbacks)
        # The initial states, for checkpoints without states.
        self._initial_states = self.get_state()

    @property
    def needs_every_record(self) -> bool:
        """Whether a loop must end at each record, because a callback needs it."""
        return self.averages_epochs or any(
            type(callback).on_log is not Callback.on_log for callback in self.callbacks
        )

    def find(self, cls: type[SomeCallback]) -> SomeCallback | None:
        """Returns the first of the callbacks that is an instance of a class, or None."""
        return next((callback for callback in self.callbacks if isinstance(callback, cls)), None)

    def call(self, event: str, *arguments: Any) -> list[Any]:
        """Calls a method of each callback, such as `on_train_end`, and returns the results."""
        return [getattr(callback, event)(*arguments) for callback in self.callbacks]

    def get_state(self) -> JsonObject:
        """Returns the state of each callback that has one, by name.

        Raises RunnerError if a state cannot be represented as JSON.
        """
        states = {
            name: callback.get_state() for name, callback in self._callbacks_by_name().items()
        }
        kept = {name: state for name, state in states.items() if state is not None}
        for name, state in kept.items():
            try:
                _check_keys(state)
                json.dumps(state)
            except (TypeError, ValueError) as error:
                raise RunnerError(
                    f"{name}.get_state() returned a value that JSON cannot represent: {error}\n"
                    "return numbers, strings, booleans, None, lists, or dicts with string keys",
                    code="wrong-type",
                ) from error
        return kept

    def set_state(self, state: Mapping[str, object]) -> None:
        """Restores the state of each callback; its initial state if none is stored."""
        for name, callback in self._callbacks_by_name().items():
            if name in self._initial_states:
                # A copy, because a callback may modify its state.
                callback.set_state(
                    json.loads(json.dumps(state.get(name, self._initial_states[name])))
                )

    def _callbacks_by_name(self) -> dict[str, Callback]:
        """Returns the callbacks by class name, with a number if several have the same class."""
        named: dict[str, Callback] = {}
        for callback in self.callbacks:
            cls = type(callback)
            name = f"{cls.__module__}.{cls.__qualname__}"
            number = 1
            while (key := name if number == 1 else f"{name}#{number}") in named:
                number += 1
            named[key] = callback
        return named


def _check_keys(state: object) -> None:
    """Raises `TypeError` for a key that JSON would turn into a string."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not a string")
            _check_keys(value)
    elif isinstance(state, (list, tuple)):
        for value in state:
            _check_keys(value)


def make_callbacks(config: Sequence[CallbackConfig]) -> list[Callback]:
    """Returns the callbacks that the section `callbacks` of a config names.

    Raises SettingError if a class does not exist, is not a callback, or takes other arguments.
    """
    callbacks = []
    for index, callback_config in enumerate(config):
        arguments = plain_value(callback_config.arguments)
        cls = load_class(callback_config.class_name, Callback, arguments, f"callbacks[{index}]")
        callbacks.append(cls(**arguments))
    return callbacks
