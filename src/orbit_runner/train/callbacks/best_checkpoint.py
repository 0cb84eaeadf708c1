"""Saves the best checkpoint: after an evaluation whose result is better than all previous ones."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.manager import Circumstances, record_of
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.distribute.process_group import Workers
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.callbacks.base import Callback, Logs
from orbit_runner.train.callbacks.comparison import Comparison
from orbit_runner.utils.files import jsonable, read_json_object, set_aside, write_whole
from orbit_runner.utils.metrics import nested_scalars

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class BestKeeper(Callback):
    """Keeps the best weights in some form. `Run.best` is one."""

    def check_files(self) -> None:
        """Checks the files of an earlier process when a run begins; does nothing by default."""

    def result(self) -> tuple[str, float, int] | None:
        """Returns the metric, its best value and the step; None if there is none."""
        return None


class BestCheckpoint(BestKeeper):
    """Saves the weights with the best result, averaged if an average is kept."""

    def __init__(
        self,
        comparison: Comparison,
        directory: Path,  # contains the checkpoint and `info.json`
        state: TrainState,
        circumstances: Circumstances,
        # float64 [2], the best result and its step. It is saved in the run's checkpoints, so that a
        # resumed run knows its best result at that step. If None, `info.json` is read instead.
        memory: tf.Variable | None = None,
        workers: Workers | None = None,  # None: this process only
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._note, self._warned = note, False
        self.comparison, self._state = comparison, state
        self._circumstances, self._memory = circumstances, memory
        self._info = directory / "info.json"
        self._folder = CheckpointFolder(directory, name="best", keep=1)
        self._writer = CheckpointWriter(state.checkpoint(), self._folder, workers=workers)
        self._writes = workers is None or workers.is_chief

    def on_evaluate(self, run: Run, logs: Logs) -> None:
        """Saves the weights if the result is better than all previous ones."""
        value = self.comparison.value(logs)
        self._warn(value)
        if not self.comparison.is_better(value, self._best()):
            return
        ema = self._state.ema
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            self._writer.write(record_of(self._state, self._circumstances))
        step = self._step()
        if self._writes:
            self._write_info({**nested_scalars(logs), self.comparison.metric: value}, step)
        if self._memory is not None:
            # A tensor of the right type, because variables that are sharded over parameter servers
            # accept nothing else.
            self._memory.assign(tf.constant([value, step], tf.float64))

    def _write_info(self, logs: Mapping[str, Any], step: int) -> None:
        best = jsonable({**logs, "best_ckpt_global_step": step})
        write_whole(self._info, json.dumps(best, indent=2) + "\n")

    def check_files(self) -> None:
        """Compares the directory with the best result of the run, and repairs `info.json`."""
        if os.path.lexists(self._info):
            try:
                read_json_object(self._info)
                return
            except (OSError, ValueError) as error:
                moved = set_aside(self._info)
                self._note(f"warning: {self._info} cannot be read ({error}); moved to {moved}")
        if self._memory is None or math.isnan(self._best()):
            return
        value, step = self._best(), int(self._memory.numpy()[1])
        if step in self._folder.committed():
            self._write_info({self.comparison.metric: value}, step)
            return
        self._note(
            f"warning: the best checkpoint, {self._folder.prefix(step)} "
            f"({self.comparison.metric} {value:g}), is missing; the next improvement is saved as "
            "the new best checkpoint"
        )

    def result(self) -> tuple[str, float, int] | None:
        """Returns the metric, its best value and the step; None if there is none."""
        value, step = self._best_and_step()
        name = self.comparison.metric.replace("|", "/")  # as in flat results
        return None if math.isnan(value) else (name, value, int(step))

    def _warn(self, value: float) -> None:
        """Warns of a result that is not finite, once for several in a row."""
        warned, self._warned = self._warned, not math.isfinite(value)
        if self._warned and not warned:
            self._note(
                f"warning: {self.comparison.metric} is {value:g} at step {self._step()}, "
                "so these weights are not saved as the best"
            )

    def _step(self) -> int:
        return int(self._state.global_step.numpy())

    def _best(self) -> float:
        return self._best_and_step()[0]

    def _best_and_step(self) -> tuple[float, float]:
        """Returns the best result and its step; NaN if there is none."""
        if self._memory is not None:
            value, step = self._memory.numpy()
            return float(value), float(step)
        try:
            info = read_json_object(self._info)
            return float(info[self.comparison.metric]), float(info.get("best_ckpt_global_step", 0))
        except (OSError, ValueError, TypeError, KeyError):
            return math.nan, math.nan
