"""Builds the callbacks that a config names, calls them in order and saves their states."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.config.schema.plugins import CallbackConfig
from orbit_runner.config.serialize import plain_value
from orbit_runner.errors import RunnerError
from orbit_runner.train.callbacks.base import Callback, Logs
from orbit_runner.utils.user_code import load_class

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class CallbackList(Callback):
    """Calls several callbacks in order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = tuple(callbacks)
        # The initial states, for checkpoints without states.
        self._initial_states = self.get_state()

    @property
    def needs_every_record(self) -> bool:
        """Whether a callback overrides `on_log`, so that a loop must end at each record."""
        return any(type(one).on_log is not Callback.on_log for one in self.callbacks)

    def has(self, cls: type[Callback]) -> bool:
        """Returns whether one of the callbacks is an instance of a class."""
        return any(isinstance(one, cls) for one in self.callbacks)

    def on_run_begin(self, run: Run) -> None:
        """Calls `on_run_begin` of each callback."""
        for callback in self.callbacks:
            callback.on_run_begin(run)

    def on_train_begin(self, run: Run) -> None:
        """Calls `on_train_begin` of each callback."""
        for callback in self.callbacks:
            callback.on_train_begin(run)

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Calls `on_loop_end` of each callback."""
        for callback in self.callbacks:
            callback.on_loop_end(run, logs)

    def on_log(self, run: Run, logs: Logs) -> None:
        """Calls `on_log` of each callback."""
        for callback in self.callbacks:
            callback.on_log(run, logs)

    def on_evaluate(self, run: Run, logs: Logs) -> None:
        """Calls `on_evaluate` of each callback."""
        for callback in self.callbacks:
            callback.on_evaluate(run, logs)

    def on_train_end(self, run: Run) -> None:
        """Calls `on_train_end` of each callback."""
        for callback in self.callbacks:
            callback.on_train_end(run)

    def get_state(self) -> dict[str, Any]:
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
                    "return numbers, strings, booleans, None, lists, or dicts with string keys"
                ) from error
        return kept

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores the state of each callback; one that is missing gets its initial state."""
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
            name, number = f"{cls.__module__}.{cls.__qualname__}", 1
            while (key := name if number == 1 else f"{name}#{number}") in named:
                number += 1
            named[key] = callback
        return named


def _check_keys(state: Any) -> None:
    """Raises `TypeError` for a key that JSON would turn into a string."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not a string")
            _check_keys(value)
    elif isinstance(state, (list, tuple)):
        for value in state:
            _check_keys(value)


def keeps_state(callback: Callback) -> bool:
    """Returns whether a callback has a state to save."""
    return type(callback).get_state is not Callback.get_state


def make_callbacks(config: Sequence[CallbackConfig]) -> list[Callback]:
    """Returns the callbacks that the section `callbacks` of a config names.

    Raises SettingError if a class does not exist, is not a callback, or takes other arguments.
    """
    made = []
    for index, one in enumerate(config):
        arguments = plain_value(one.arguments)
        cls = load_class(one.class_name, Callback, arguments, f"callbacks[{index}]")
        made.append(cls(**arguments))
    return made
