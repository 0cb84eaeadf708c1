"""Runs the next step of a run in Python's debugger, without changing the run."""

from __future__ import annotations

import bdb
import contextlib
import pdb
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.inspection.layers import replaced_methods_scope
from orbit_runner.replay.examine_step import check_examinable, eager_functions_scope
from orbit_runner.replay.kept_state import kept_state_scope

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


def debug_step(run: Run) -> None:
    """Runs the next step of a run eagerly, and stops at the first line of `task.train_step`.

    Each replica stops there. An error of the step ends it; the debugger then shows where it was
    raised.

    Args:
        run: A run that trains.

    Raises:
        RunnerError: The run cannot be examined, or has no more batches.
    """
    check_examinable(run)
    assert run.trainer is not None
    batch = run.trainer.next_batch()
    with (
        run.strategy.scope(),
        kept_state_scope(run),
        eager_functions_scope(),
        replaced_methods_scope([run.task], "train_step", _wrap_in_debugger),
        contextlib.suppress(bdb.BdbQuit),
    ):
        run.trainer.train_step(iter([batch]))


def _wrap_in_debugger(task: Any) -> Callable[..., Any]:
    original = task.train_step

    @tf.autograph.experimental.do_not_convert
    def train_step(*args: Any, **kwargs: Any) -> Any:
        debugger = pdb.Pdb()
        try:
            return debugger.runcall(original, *args, **kwargs)
        except bdb.BdbQuit:
            raise
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
            debugger.reset()
            debugger.interaction(None, error.__traceback__)
            raise bdb.BdbQuit from error

    return train_step
