"""Saves the best checkpoints: after an evaluation whose result is better than previous ones."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of
from orbit_runner.checkpoint.manager import RunConditions, record_of
from orbit_runner.checkpoint.ranking import (
    Entry,
    KeepRanked,
    Ranking,
    insert_entry,
    ranking_on_disk,
    read_ranking,
)
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import RunnerError, SettingError, unknown_name_message
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.callbacks.base import Callback, Logs, RunView
from orbit_runner.utils.files import read_json_object, set_aside, to_jsonable, write_atomically
from orbit_runner.utils.metrics import nested_scalars


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A metric and the direction in which it improves."""

    metric: str  # `a|b` is `b` in the nested results `a`
    higher: bool  # whether higher values are better

    def value(self, logs: Mapping[str, object]) -> float:
        """Returns the value of the metric in the results of an evaluation.

        Raises RunnerError if the metric is missing.
        """
        value: object = logs
        for name in self.metric.split("|"):
            if not isinstance(value, Mapping) or name not in value:
                known = list(value) if isinstance(value, Mapping) else []
                raise RunnerError(
                    unknown_name_message("metric", self.metric, known), code="unknown-name"
                )
            value = value[name]
        return float(value)  # type: ignore[arg-type]

    def is_better(self, value: float, than: float, by: float = 0.0) -> bool:
        """Returns whether a value is better than another by more than `by`.

        `than` is NaN if there is no other value yet. A value that is NaN or infinite is never
        better.
        """
        if not math.isfinite(value):
            return False
        if math.isnan(than):
            return True
        return value > than + by if self.higher else value < than - by


def require_metric(name: str, known: Sequence[str], setting: str) -> None:
    """Raises SettingError if evaluations do not report the metric that a setting names."""
    if name not in known:
        raise SettingError(
            setting, unknown_name_message("metric", name, known), code="unknown-name"
        )


class BestCheckpoint(Callback):
    """Saves the weights with the best results, averaged if an average is kept.

    With `keep` above 1, the ranking is part of the callback's state in the run's checkpoints.
    """

    def __init__(
        self,
        comparison: Comparison,
        directory: Path,  # contains the checkpoint and `info.json`
        state: TrainState,
        conditions: RunConditions,
        # float64 [2], the best result and its step. It is saved in the run's checkpoints, so that a
        # resumed run knows its best result at that step. If None, `info.json` is read instead.
        memory: tf.Variable | None = None,
        workers: Workers | None = None,  # None: this process only
        keep: int = 1,  # the number of best checkpoints
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._note = note
        self._warned = False
        self.comparison = comparison
        self._state = state
        self._conditions = conditions
        self._memory = memory
        self._info = directory / "info.json"
        self._keep = keep
        self._others = list[Entry]()
        self._rule = KeepRanked()
        self._folder = CheckpointFolder(directory, name="best", keep=self._rule)
        self._writer = CheckpointWriter(state.checkpoint(), self._folder, workers=workers)
        self._writes = workers is None or workers.is_chief

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Saves the weights if the result is one of the best."""
        value = self.comparison.value(logs)
        self._warn(value)
        new = Entry(value, self._step())
        ranking = insert_entry(self._ranking(), new, self.comparison.is_better, self._keep)
        if ranking is None:
            return
        self._rule.ranking, self._rule.needed = ranking, self._steps_in_latest_ranking(run)
        result = to_jsonable({**nested_scalars(logs), self.comparison.metric: value})
        record = dataclasses.replace(record_of(self._state, self._conditions), result=result)
        ema = self._state.ema
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            self._writer.write(record)
        if self._writes and ranking[0] == new:
            self._write_info(result, new.step)
        self._store_ranking(ranking)

    def _store_ranking(self, ranking: Ranking) -> None:
        best, *self._others = ranking
        if self._memory is not None and best != self._best_and_step():
            # A tensor of the right type, because variables that are sharded over parameter servers
            # accept nothing else.
            self._memory.assign(tf.constant([best.value, best.step], tf.float64))

    def _ranking(self) -> list[Entry]:
        """Returns the best results so far, the best first."""
        if self._memory is None and self._keep > 1:
            metric = self.comparison.metric
            return ranking_on_disk(self._folder, metric, self.comparison.is_better)
        value, step = self._best_and_step()
        return [] if math.isnan(value) else [Entry(value, int(step)), *self._others]

    def _steps_in_latest_ranking(self, run: RunView) -> frozenset[int]:
        """Returns the steps that the latest checkpoint of the run ranks.

        Their files are needed if the run returns to that checkpoint.
        """
        if self._keep == 1 or self._memory is None:
            return frozenset()
        run.checkpoints.sync()  # Until then, the latest checkpoint may be incomplete.
        checkpoints = checkpoints_of(run.model_dir)
        with contextlib.suppress(OSError, ValueError, IndexError):
            record = checkpoints.record(checkpoints.committed_steps()[-1])
            state = {} if record is None else record.callbacks.get(_STATE, [])
            return frozenset(entry.step for entry in read_ranking(state))
        return frozenset()

    def get_state(self) -> list[list[float]] | None:
        """Returns the ranking, or None if only one checkpoint is kept."""
        if self._keep == 1 or self._memory is None:
            return None
        return [[entry.value, entry.step] for entry in self._ranking()]

    def set_state(self, state: object) -> None:
        """Restores the ranking. The best result itself is a variable in the checkpoint."""
        best = self._best_and_step()
        ranking = read_ranking(state)
        self._others = ranking[1 : self._keep] if ranking and ranking[0] == best else []

    def _write_info(self, result: Mapping[str, object], step: int) -> None:
        best = {**result, "best_ckpt_global_step": step}
        write_atomically(self._info, json.dumps(best, indent=2) + "\n")

    def check_files(self) -> None:
        """Compares the directory with the ranking of the run, and repairs `info.json`."""
        self._folder.clear_leftovers()
        self._check_info()
        self.remove_surplus()

    def remove_surplus(self) -> None:
        """Removes all checkpoints that are not ranked, and updates what names the best one."""
        ranking = self._ranking()
        there = self._folder.committed_steps()
        if not self._writes or self._memory is None or max(self._keep, len(there)) == 1:
            return
        missing = [entry.step for entry in ranking if entry.step not in there]
        if not ranking or ranking[0].step in missing:
            return  # Whatever is there is better than nothing.
        if missing:
            names = ", ".join(map(self._name, missing))
            self._note(f"warning: checkpoints that are among the best are missing: {names}")
        self._rule.ranking = ranking
        self._rule.needed = frozenset()
        self._folder.prune(max(there))
        self._update_info(ranking[0])

    def _update_info(self, best: Entry) -> None:
        with contextlib.suppress(OSError, ValueError):
            if read_json_object(self._info).get("best_ckpt_global_step") == best.step:
                return
        with contextlib.suppress(OSError, ValueError):
            record = self._folder.record(best.step)
            result = record.result if record is not None else {}
            self._write_info(result or {self.comparison.metric: best.value}, best.step)

    def _check_info(self) -> None:
        if os.path.lexists(self._info):
            try:
                read_json_object(self._info)
                return
            except (OSError, ValueError) as error:
                moved = set_aside(self._info)
                self._note(f"warning: {self._info} cannot be read ({error}); moved to {moved}")
        if self._memory is None or math.isnan(self._best()):
            return
        value = self._best()
        step = int(self._memory.numpy()[1])
        if step in self._folder.committed_steps():
            self._write_info({self.comparison.metric: value}, step)
            return
        self._note(
            f"warning: the best checkpoint so far, {self._name(step)} "
            f"({self.comparison.metric} {value:g}), is missing; the next improvement is saved as "
            "the new best checkpoint"
        )

    def result(self) -> tuple[str, float, int] | None:
        """Returns the metric, its best value and the step; None if there is none."""
        value, step = self._best_and_step()
        name = self.comparison.metric.replace("|", "/")  # as in flat results
        return None if math.isnan(value) else (name, value, step)

    def _warn(self, value: float) -> None:
        """Warns of a result that is not finite, once for several in a row."""
        warned, self._warned = self._warned, not math.isfinite(value)
        if self._warned and not warned:
            self._note(
                f"warning: {self.comparison.metric} is {value:g} at step {self._step()}, "
                "so these weights are not saved as the best"
            )

    def _name(self, step: int) -> str:
        """Returns a checkpoint by its path in the run directory, which may be renamed later."""
        return "/".join(self._folder.prefix(step).parts[-2:])

    def _step(self) -> int:
        return int(self._state.global_step.numpy())

    def _best(self) -> float:
        return self._best_and_step()[0]

    def _best_and_step(self) -> Entry:
        """Returns the best result and its step; the result is NaN if there is none."""
        if self._memory is not None:
            value, step = self._memory.numpy()
            return Entry(float(value), int(step))
        try:
            info = read_json_object(self._info)
            step = int(info.get("best_ckpt_global_step", 0))
            return Entry(float(info[self.comparison.metric]), step)
        except (OSError, ValueError, TypeError, KeyError):
            return Entry(math.nan, -1)


# The name of its state in the records of checkpoints; see `CallbackList`.
_STATE = f"{BestCheckpoint.__module__}.{BestCheckpoint.__qualname__}"
