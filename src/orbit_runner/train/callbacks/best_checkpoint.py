"""Saves the best checkpoints: after an evaluation whose result is better than previous ones."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbit_runner.checkpoint.directory import (
    CheckpointFolder,
    Entry,
    KeepRanked,
    insert_entry,
    ranking_on_disk,
)
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of
from orbit_runner.checkpoint.manager import record_of
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import RunnerError, unknown_name_message
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.callbacks.base import Callback, Logs, RunView
from orbit_runner.utils.files import to_jsonable, write_if_changed
from orbit_runner.utils.log import note
from orbit_runner.utils.metrics import nested_scalars


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A metric and the direction in which it improves."""

    metric: str  # `a|b` is `b` in the nested results `a`
    higher: bool  # whether higher values are better

    @property
    def name(self) -> str:
        """What a state of earlier results belongs to: the metric and the direction."""
        return f"{'higher' if self.higher else 'lower'} {self.metric}"

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


class BestCheckpoint(Callback):
    """Saves the weights with the best results, averaged if an average is kept.

    The ranking is part of the callback's state in the run's checkpoints, so that a resumed run
    knows the results until that step. A process that only evaluates reads it from the records of
    the best checkpoints. `info.json` and the order in the `checkpoint` file follow from it.
    """

    def __init__(
        self,
        comparison: Comparison,
        directory: Path,  # contains the checkpoints and `info.json`
        state: TrainState,
        *,
        trains: bool = True,  # whether the ranking is in the checkpoints of this process
        workers: Workers | None = None,  # None: this process only
        keep: int = 1,  # the number of best checkpoints
    ) -> None:
        self._warned = False
        self.comparison = comparison
        self._state = state
        self._info = directory / "info.json"
        self._trains = trains
        self._keep = keep
        self._rule = KeepRanked()
        self._folder = CheckpointFolder(directory, name="best", keep=self._rule)
        self._writer = CheckpointWriter(state.checkpoint(), self._folder, workers=workers)
        self._writes = workers is None or workers.is_chief
        self._ranking = list[Entry]()  # the best results so far, the best first

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Saves the weights if the result is one of the best."""
        value = self.comparison.value(logs)
        self._warn(value)
        is_better = self.comparison.is_better
        if not self._trains:
            self._ranking = ranking_on_disk(self._folder, self.comparison.metric, is_better)
        entry = Entry(value, int(self._state.global_step.numpy()))
        ranking = insert_entry(self._ranking, entry, is_better, self._keep)
        if ranking is None:
            return
        self._rule.ranking, self._rule.needed = ranking, self._steps_in_latest_ranking(run)
        result = to_jsonable({**nested_scalars(logs), self.comparison.metric: value})
        record = record_of(self._state, run.checkpoints.conditions)
        ema = self._state.ema
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            self._writer.write(dataclasses.replace(record, result=result))
        self._ranking = ranking
        self._write_info()

    def _steps_in_latest_ranking(self, run: RunView) -> frozenset[int]:
        """Returns the steps that the latest checkpoint of the run ranks.

        Their files are needed if the run returns to that checkpoint.
        """
        if self._keep == 1 or not self._trains:
            return frozenset()
        run.checkpoints.sync()  # Until then, the latest checkpoint may be incomplete.
        checkpoints = checkpoints_of(run.model_dir)
        with contextlib.suppress(OSError, ValueError, IndexError):
            record = checkpoints.record(checkpoints.committed_steps()[-1])
            return frozenset(entry.step for entry in self._parse(record.callbacks.get(_STATE)))
        return frozenset()

    def get_state(self) -> dict[str, object] | None:
        """Returns the ranking, and what it is a ranking of."""
        if not self._trains:
            return None
        ranking = [[entry.value, entry.step] for entry in self._ranking]
        return {"metric": self.comparison.name, "ranking": ranking}

    def set_state(self, state: object) -> None:
        """Restores the ranking, unless it is one of another metric."""
        self._ranking = self._parse(state)[: self._keep]

    def _parse(self, state: Any) -> list[Entry]:
        with contextlib.suppress(TypeError, ValueError, KeyError):
            if state["metric"] == self.comparison.name:
                return [Entry(float(value), int(step)) for value, step in state["ranking"]]
        return []

    def forget(self) -> None:
        """Forgets all results, which are of other data than those that follow."""
        self._ranking = []

    def _write_info(self) -> None:
        """Writes the result of the best checkpoint to `info.json`, if the checkpoint is there."""
        if not self._writes or not self._ranking:
            return
        step = self._ranking[0].step
        with contextlib.suppress(OSError, ValueError):
            best = {**self._folder.record(step).result, "best_ckpt_global_step": step}
            write_if_changed(self._info, json.dumps(best, indent=2) + "\n")

    def check_files(self, *, reports: bool) -> None:
        """Removes what is not ranked, reports what is missing if asked, and updates `info.json`.

        Must be called when the run begins or returns to a checkpoint, and at the end of training.
        """
        if not self._writes:
            return
        self._folder.clear_leftovers()
        committed_steps = self._folder.committed_steps()
        ranked = [entry.step for entry in self._ranking]
        missing = [step for step in ranked if step not in committed_steps]
        if missing and reports:
            names = ", ".join(map(self._name, missing))
            note(f"warning: checkpoints that are among the best are missing: {names}")
        if not ranked or ranked[0] in missing:
            return  # Whatever is there is better than nothing.
        self._rule.ranking, self._rule.needed = self._ranking, frozenset()
        self._folder.prune(max(committed_steps))
        self._write_info()

    def result(self) -> tuple[str, float, int] | None:
        """Returns the metric, its best value and the step; None if there is none."""
        name = self.comparison.metric.replace("|", "/")  # as in flat results
        return (name, *self._ranking[0]) if self._ranking else None

    def _warn(self, value: float) -> None:
        """Warns of a result that is not finite, once for several in a row."""
        warned, self._warned = self._warned, not math.isfinite(value)
        if self._warned and not warned:
            note(
                f"warning: {self.comparison.metric} is {value:g} at step "
                f"{int(self._state.global_step.numpy())}, so these weights are not saved as the "
                "best"
            )

    def _name(self, step: int) -> str:
        """Returns a checkpoint by its path in the run directory, which may be renamed later."""
        return "/".join(self._folder.prefix(step).parts[-2:])


# The name of its state in the records of checkpoints; see `CallbackList`.
_STATE = f"{BestCheckpoint.__module__}.{BestCheckpoint.__qualname__}"
