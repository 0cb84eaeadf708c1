"""What happens after an evaluation or a loop: the best checkpoint, early stop, going back."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.manager import Circumstances, record_of
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.config.schema.trainer import EarlyStopping
from orbit_runner.distribute.process_group import Workers
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.callbacks.comparison import Comparison
from orbit_runner.train.callbacks.summaries import nested_scalars
from orbit_runner.utils.files import jsonable, read_json_object, set_aside, write_whole

AVERAGES = "ema_checkpoints"


class BestCheckpoint:
    """Saves the weights that did best, averaged where an average is kept."""

    def __init__(
        self,
        comparison: Comparison,
        directory: Path,
        state: TrainState,
        circumstances: Circumstances,
        memory: tf.Variable | None = None,
        workers: Workers | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Opens the folder.

        Args:
            comparison: Which result is better.
            directory: Where the checkpoint and `info.json` go.
            state: What is saved.
            circumstances: What the run goes on under.
            memory: float64 [2], the best result and its step, kept in the run's checkpoints so that
                a resumed run knows what it knew then; `info.json` is the memory where None.
            workers: The workers that train together, of which the chief alone writes; None for one.
            note: Called with warnings.
        """
        self._note, self._warned = note, False
        self.comparison, self._state = comparison, state
        self._circumstances, self._memory = circumstances, memory
        self._info = directory / "info.json"
        self._folder = CheckpointFolder(directory, name="best", keep=1)
        self._writer = CheckpointWriter(state.checkpoint(), self._folder, workers=workers)
        self._writes = workers is None or workers.is_chief

    def __call__(self, logs: Mapping[str, Any]) -> None:
        """Saves the weights if the result is better than all before.

        Args:
            logs: The result of an evaluation.
        """
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
            # A tensor of that type: variables cut over parameter servers take nothing else.
            self._memory.assign(tf.constant([value, step], tf.float64))

    def _write_info(self, logs: Mapping[str, Any], step: int) -> None:
        best = jsonable({**logs, "best_ckpt_global_step": step})
        write_whole(self._info, json.dumps(best, indent=2) + "\n")

    def check_files(self) -> None:
        """Compares the folder with what the run remembers, and repairs `info.json`."""
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
            f"({self.comparison.metric} {value:g}), is gone; another one is saved as soon as a "
            "result is better"
        )

    def _warn(self, value: float) -> None:
        """Reports a result that cannot be compared, once for several in a row."""
        warned, self._warned = self._warned, not math.isfinite(value)
        if self._warned and not warned:
            self._note(
                f"warning: {self.comparison.metric} is {value:g} at step {self._step()}, "
                "so these weights are not kept as the best"
            )

    def _step(self) -> int:
        return int(self._state.global_step.numpy())

    def _best(self) -> float:
        if self._memory is not None:
            return float(self._memory.numpy()[0])
        try:
            return float(read_json_object(self._info).get(self.comparison.metric, "nan"))
        except (OSError, ValueError, TypeError):
            return float("nan")


class AverageCheckpoints:
    """Saves the averaged weights after each evaluation, as Model Garden does."""

    def __init__(
        self,
        model_dir: Path,
        state: TrainState,
        circumstances: Circumstances,
        *,
        keep: int | None,
        workers: Workers | None = None,
    ) -> None:
        """Opens the folder.

        Args:
            model_dir: The folder of the run.
            state: What is saved; an average is kept in it.
            circumstances: What the run goes on under.
            keep: How many stay; None: all.
            workers: The workers that train together, of which the chief alone writes; None for one.
        """
        folder = CheckpointFolder(model_dir / AVERAGES, name="average_weights", keep=keep)
        self._writer = CheckpointWriter(state.checkpoint(), folder, workers=workers)
        self._state, self._circumstances = state, circumstances

    def __call__(self, logs: Mapping[str, Any]) -> None:
        """Saves them.

        Args:
            logs: The result of an evaluation.
        """
        assert self._state.ema is not None
        with self._state.ema.applied_scope():
            self._writer.write(record_of(self._state, self._circumstances))


class EarlyStop:
    """Says when to end before the last step; its memory is in the checkpoint."""

    def __init__(self, rule: EarlyStopping, memory: tf.Variable) -> None:
        """Makes the rule ready.

        Args:
            rule: The settings.
            memory: float64 [3]: best value, evaluations since, step of the last evaluation.
        """
        self._rule, self._memory = rule, memory
        self.comparison = Comparison(rule.metric, rule.metric_comp == "higher")

    def earlier_reason(self) -> str:
        """Returns why training ended early before, so that it is not started anew; "" if not."""
        best, since, _ = self._memory.numpy()
        return self._verdict(best, best, since)

    def reason(self, logs: Mapping[str, Any], step: int) -> str:
        """Takes in a result, and says why training should end.

        Args:
            logs: The result of an evaluation.
            step: Its global step.

        Returns:
            The reason; "" to go on.
        """
        value = self.comparison.value(logs)
        best, since, _ = self._memory.numpy()
        if self.comparison.is_better(value, best, self._rule.min_delta):
            best, since = value, 0
        else:
            since += 1
        self._memory.assign(tf.constant([best, since, step], tf.float64))
        return self._verdict(value, best, since)

    def _verdict(self, value: float, best: float, since: float) -> str:
        rule = self._rule
        if rule.threshold is not None and math.isfinite(value):
            reached = value >= rule.threshold if self.comparison.higher else value <= rule.threshold
            if reached:
                return f"{rule.metric} {value:.4g} reached {rule.threshold:g}"
        if rule.patience is not None and since >= rule.patience:
            if math.isnan(best):
                return f"{rule.metric} was NaN or infinite at all {int(since)} evaluations"
            return f"{rule.metric} no better than {best:.4g} for {int(since)} evaluations"
        return ""
