"""Forgets the results of earlier evaluations that a resumed run must not compare with its own.

The best result and the state of early stopping are part of a checkpoint. If the run is resumed with
other validation data (`--resume=override`, or a branch) or with another metric, they are numbers
of something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.config.serialize import to_yaml
from orbit_runner.errors import format_list
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.config_values import parse_settings, read_settings
from orbit_runner.run_directory.data_record import DataRecord
from orbit_runner.run_directory.evaluations import (
    OtherData,
    find_other_data,
    set_evaluations_apart,
)
from orbit_runner.train.build_state import NO_BEST, NO_EARLY_STOPPING
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import RunView

_BEST = ("trainer.best_checkpoint_eval_metric", "trainer.best_checkpoint_metric_comp")
_EARLY_STOPPING = (
    "trainer.early_stopping.metric",
    "trainer.early_stopping.metric_comp",
)


def forget_earlier_results(run: RunView) -> None:
    """Resets the best result and early stopping if earlier results are not comparable.

    Must be called by all workers after the state is restored, before `config.yaml` is written.
    """
    forgets_best = False
    forgets_stopping = False
    if run.is_chief:
        before = _previous_run(run)
        own = read_settings(before)
        now = parse_settings(to_yaml(run.written_config))
        earlier = _earlier_data(run, before)
        forgets_best = bool(earlier) or _differ(own, now, _BEST)
        forgets_stopping = bool(earlier) or _differ(own, now, _EARLY_STOPPING)
        if earlier:
            set_evaluations_apart(run.directory.metrics, earlier)
            note(
                "note: evaluations are of other data or losses than before, so earlier results do "
                "not count for the best checkpoint, early stopping and curves any more:\n"
                f"{format_list(earlier.lines())}"
            )
    # The others may read `config.yaml` only after the chief has replaced it.
    if run.workers.broadcast_from_chief(int(forgets_best)):
        run.state.best.assign(tf.constant(NO_BEST, tf.float64))
    if run.workers.broadcast_from_chief(int(forgets_stopping)):
        run.state.early_stopping.assign(tf.constant(NO_EARLY_STOPPING, tf.float64))


def _previous_run(run: RunView) -> Path:
    """Returns the directory of the run that made the restored checkpoint."""
    branch = read_branch(run.model_dir)
    return branch.parent if branch is not None and branch.step == run.step else run.model_dir


def _earlier_data(run: RunView, before: Path) -> OtherData:
    """Returns how the validation data now differ from those of the earlier evaluations."""
    changed = find_other_data(before, run.written_config, compares_files=False)
    records = (callback for callback in run.callbacks.callbacks if isinstance(callback, DataRecord))
    files = [line for record in records for line in record.difference.changes]
    lines = tuple(line for line in files if line.startswith("validation_data"))
    return OtherData(changed.settings, changed.own, lines)


def _differ(own: Mapping[str, object], now: Mapping[str, object], paths: tuple[str, ...]) -> bool:
    return bool(own) and any(own.get(path) != now.get(path) for path in paths)
