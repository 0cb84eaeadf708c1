"""What happens after an evaluation or a loop: the best checkpoint, early stop, going back."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.config.trainer import EarlyStopping, TrainerConfig
from orbit_runner.errors import RunnerError
from orbit_runner.training.checkpoints.folder import CheckpointFolder
from orbit_runner.training.checkpoints.manager import Circumstances, record_of
from orbit_runner.training.checkpoints.writer import CheckpointWriter
from orbit_runner.training.comparison import Comparison
from orbit_runner.training.files import jsonable, write_whole
from orbit_runner.training.state import TrainState
from orbit_runner.training.summaries import nested_scalars

AVERAGES = "ema_checkpoints"


class Diverged(RunnerError, RuntimeError):
    """The training loss is not a number, or above its bound; a RuntimeError, as Model Garden's."""

    exit_code = 3


class BestCheckpoint:
    """Saves the weights that did best, averaged where an average is kept."""

    def __init__(
        self,
        comparison: Comparison,
        directory: Path,
        state: TrainState,
        circumstances: Circumstances,
        memory: tf.Variable | None = None,
        writes: bool = True,
    ) -> None:
        """Opens the folder.

        Args:
            comparison: Which result is better.
            directory: Where the checkpoint and `info.json` go.
            state: What is saved.
            circumstances: What the run goes on under.
            memory: float64 [2], the best result and its step, kept in the run's checkpoints so that
                a resumed run knows what it knew then; `info.json` is the memory where None.
            writes: Whether this worker is the one that writes.
        """
        self.comparison, self._state = comparison, state
        self._circumstances, self._memory = circumstances, memory
        self._info = directory / "info.json"
        folder = CheckpointFolder(directory, name="best", keep=1)
        self._writer = CheckpointWriter(state.checkpoint(), folder, writes=writes)
        self._writes = writes

    def __call__(self, logs: Mapping[str, Any]) -> None:
        """Saves the weights if the result is better than all before.

        Args:
            logs: The result of an evaluation.
        """
        value = self.comparison.value(logs)
        if not self.comparison.is_better(value, self._best()):
            return
        ema = self._state.ema
        with ema.applied() if ema is not None else contextlib.nullcontext():
            self._writer.write(record_of(self._state, self._circumstances))
        step = int(self._state.global_step.numpy())
        best = {
            **nested_scalars(logs),
            self.comparison.metric: value,
            "best_ckpt_global_step": step,
        }
        if self._writes:
            write_whole(self._info, json.dumps(jsonable(best), indent=2) + "\n")
        if self._memory is not None:
            # A tensor of that type: variables cut over parameter servers take nothing else.
            self._memory.assign(tf.constant([value, step], tf.float64))

    def _best(self) -> float:
        if self._memory is not None:
            return float(self._memory.numpy()[0])
        if not self._info.exists():
            return float("nan")
        known = json.loads(self._info.read_text(encoding="utf-8"))
        return float(known.get(self.comparison.metric, "nan"))


class AverageCheckpoints:
    """Saves the averaged weights after each evaluation, as Model Garden does."""

    def __init__(
        self,
        model_dir: Path,
        state: TrainState,
        circumstances: Circumstances,
        *,
        keep: int,
        writes: bool = True,
    ) -> None:
        """Opens the folder.

        Args:
            model_dir: The folder of the run.
            state: What is saved; an average is kept in it.
            circumstances: What the run goes on under.
            keep: How many stay.
            writes: Whether this worker is the one that writes.
        """
        folder = CheckpointFolder(model_dir / AVERAGES, name="average_weights", keep=keep)
        self._writer = CheckpointWriter(state.checkpoint(), folder, writes=writes)
        self._state, self._circumstances = state, circumstances

    def __call__(self, logs: Mapping[str, Any]) -> None:
        """Saves them.

        Args:
            logs: The result of an evaluation.
        """
        assert self._state.ema is not None
        with self._state.ema.applied():
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

    def remembered(self) -> str:
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
        if rule.threshold is not None and not math.isnan(value):
            reached = value >= rule.threshold if self.comparison.higher else value <= rule.threshold
            if reached:
                return f"{rule.metric} {value:.4g} reached {rule.threshold:g}"
        if rule.patience is not None and since >= rule.patience:
            return f"{rule.metric} no better than {best:.4g} for {int(since)} evaluations"
        return ""


class DivergenceGuard:
    """Stops training as soon as it diverged."""

    def __init__(self, trainer: TrainerConfig, state: TrainState) -> None:
        """Makes the guard ready.

        Args:
            trainer: The settings.
            state: Holds the step and the count of recoveries.
        """
        self._trainer, self._state = trainer, state

    def __call__(self, logs: Mapping[str, Any]) -> None:
        """Looks at the loss after a loop.

        Args:
            logs: The output of the loop.

        Raises:
            Diverged: The loss diverged.
        """
        loss, step = float(logs["training_loss"]), int(self._state.global_step.numpy())
        above = loss > self._trainer.loss_upper_bound and step >= self._trainer.recovery_begin_steps
        if not (math.isnan(loss) or above):
            return
        trials = int(self._state.recoveries.numpy())
        raise Diverged(
            f"training diverged: the loss is {loss:g} at step {step}, allowed: at most "
            f"{self._trainer.loss_upper_bound:g}"
            + (f"; went back {trials} times" if trials else "")
            + "\nlower the learning rate, or set trainer.recovery_max_trials to go back"
        )
