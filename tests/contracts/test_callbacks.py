"""What every callback of the runner promises: its events, its state, and its exactness."""

import importlib
import inspect
import json
import pkgutil

import pytest

from orbit_runner.train import callbacks as package
from orbit_runner.train.callbacks.base import Callback
from tests.support.configs import keep_best
from tests.support.toy import make_strategy, toy_config, trained

_EVENTS = [name for name in vars(Callback) if name.startswith("on_")]
_METHODS = (*_EVENTS, "get_state", "set_state")


def _subclasses(cls):
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def all_callbacks():
    """Returns the callbacks of the package, of which some are in other modules than its own."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    own = {cls for cls in _subclasses(Callback) if cls.__module__.startswith("orbit_runner.")}
    return sorted(own, key=lambda cls: (cls.__module__, cls.__qualname__))


@pytest.mark.parametrize("cls", all_callbacks(), ids=lambda cls: cls.__qualname__)
def test_callback_overrides_events_with_their_arguments(cls):
    for name in _METHODS:
        arguments = [*inspect.signature(getattr(Callback, name)).parameters]
        assert [*inspect.signature(getattr(cls, name)).parameters] == arguments
    misspelled = {name for name in vars(cls) if name.startswith("on_")} - {*_EVENTS}
    assert misspelled == set()
    has_own = [name in vars(cls) for name in ("get_state", "set_state")]
    assert has_own in ([True, True], [False, False])


def _stopping():
    return toy_config(
        trainer__early_stopping={"metric": "validation_loss", "patience": 50},
        **keep_best("validation_loss"),
    )


@pytest.fixture(scope="module")
def run_callbacks(tmp_path_factory):
    """The callbacks of a run that has ended."""
    run = trained(
        _stopping(), tmp_path_factory.mktemp("callbacks") / "run", make_strategy("one_device")
    )
    return run.callbacks.callbacks


@pytest.mark.slow
def test_state_is_json_and_the_same_after_a_restart(run_callbacks):
    assert len(run_callbacks) >= 2
    for callback in run_callbacks:
        state = callback.get_state()
        keeps_state = type(callback).get_state is not Callback.get_state
        assert keeps_state or state is None
        if state is None:
            continue
        assert json.loads(json.dumps(state)) == state
        callback.set_state(json.loads(json.dumps(state)))
        assert callback.get_state() == state


def test_callbacks_of_the_runner_leave_a_run_exact(run_callbacks):
    assert [callback.inexact_reason for callback in run_callbacks if callback.inexact_reason] == []
