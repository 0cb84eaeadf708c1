"""Makes the callbacks that a config names, calls them in order, and keeps their states."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.config.schema.callbacks import CallbackConfig
from orbit_runner.config.serialize import plain
from orbit_runner.errors import RunnerError, SettingError, unknown
from orbit_runner.train.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class CallbackList(Callback):
    """Calls several callbacks in their order.

    Attributes:
        callbacks: The callbacks.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        """Takes the states that the callbacks begin with.

        Args:
            callbacks: The callbacks.

        Raises:
            RunnerError: One of them has a state that JSON cannot hold.
        """
        self.callbacks = tuple(callbacks)
        # A run that returns to a checkpoint without states begins with these.
        self._first = self.get_state()

    @property
    def needs_every_record(self) -> bool:
        """Whether one of them is called at each record, so that a loop may not go past one."""
        return any(type(one).on_log is not Callback.on_log for one in self.callbacks)

    def has(self, cls: type[Callback]) -> bool:
        """Returns whether one of them is of a class.

        Args:
            cls: The class.
        """
        return any(isinstance(one, cls) for one in self.callbacks)

    def on_run_begin(self, run: Run) -> None:
        """Calls it for each."""
        for callback in self.callbacks:
            callback.on_run_begin(run)

    def on_train_begin(self, run: Run) -> None:
        """Calls it for each."""
        for callback in self.callbacks:
            callback.on_train_begin(run)

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Calls it for each."""
        for callback in self.callbacks:
            callback.on_loop_end(run, logs)

    def on_log(self, run: Run, logs: Logs) -> None:
        """Calls it for each."""
        for callback in self.callbacks:
            callback.on_log(run, logs)

    def on_evaluate(self, run: Run, logs: Logs) -> None:
        """Calls it for each."""
        for callback in self.callbacks:
            callback.on_evaluate(run, logs)

    def on_train_end(self, run: Run) -> None:
        """Calls it for each."""
        for callback in self.callbacks:
            callback.on_train_end(run)

    def get_state(self) -> dict[str, Any]:
        """Returns the state of each that has one, by its name."""
        states = {name: callback.get_state() for name, callback in self._named().items()}
        kept = {name: state for name, state in states.items() if state is not None}
        for name, state in kept.items():
            try:
                json.dumps(state)
            except (TypeError, ValueError) as error:
                raise RunnerError(
                    f"{name}.get_state() returned what JSON cannot hold: {error}\n"
                    "return numbers, texts, booleans, None, and lists and dicts of these"
                ) from error
        return kept

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores the state of each; one that is missing begins anew.

        Args:
            state: What `get_state` returned when a checkpoint was saved.
        """
        for name, callback in self._named().items():
            if name in self._first:
                # A copy: a callback may change what it is given.
                callback.set_state(json.loads(json.dumps(state.get(name, self._first[name]))))

    def _named(self) -> dict[str, Callback]:
        """Returns the callbacks by class; one of a class that came before by its number, too."""
        named: dict[str, Callback] = {}
        for callback in self.callbacks:
            cls = type(callback)
            name, number = f"{cls.__module__}.{cls.__qualname__}", 1
            while (key := name if number == 1 else f"{name}#{number}") in named:
                number += 1
            named[key] = callback
        return named


def keeps_state(callback: Callback) -> bool:
    """Returns whether a callback has a state to be saved.

    Args:
        callback: The callback.
    """
    return type(callback).get_state is not Callback.get_state


def make_callbacks(config: Sequence[CallbackConfig]) -> list[Callback]:
    """Makes the callbacks that a config names.

    Args:
        config: The section `callbacks`.

    Raises:
        SettingError: A class is not there, is not a callback, or takes other arguments.
    """
    return [_make(one, f"callbacks[{index}]") for index, one in enumerate(config)]


def _make(config: CallbackConfig, path: str) -> Callback:
    cls, arguments = _load(config.class_name, f"{path}.class_name"), plain(config.arguments)
    try:
        inspect.signature(cls).bind(**arguments)
    except TypeError as error:
        raise SettingError(f"{path}.arguments", f"{config.class_name}: {error}") from error
    return cls(**arguments)


def _load(class_name: str, path: str) -> type[Callback]:
    module_name, _, name = class_name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise SettingError(path, f"cannot import {module_name!r}: {error}") from error
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, Callback):
        return found
    if found is not None:
        raise SettingError(path, f"{class_name} is no subclass of orbit_runner.Callback")
    here = (one for one in vars(module).values() if isinstance(one, type))
    known = [one.__name__ for one in here if issubclass(one, Callback) and one is not Callback]
    raise SettingError(path, f"{module_name}: {unknown('callback', name, known)}")
