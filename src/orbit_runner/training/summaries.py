"""Records of a run: `metrics.jsonl` for machines, event files for TensorBoard."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orbit
import tensorflow as tf

from orbit_runner.training.files import jsonable


class JsonLines:
    """Appends one line a record; a line is written at once, so a reader never sees half of one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends a record.

        Args:
            record: Name to value; NaN and infinities become null, as JSON has none.
        """
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(jsonable(record)) + "\n")


class Summaries(orbit.utils.SummaryManagerInterface):
    """Writes what Orbit hands over, at the steps where a record ends."""

    def __init__(
        self,
        directory: Path | None,
        lines: JsonLines | None,
        split: str,
        global_step: tf.Variable,
        is_record: Callable[[int], bool] = lambda step: True,
    ) -> None:
        """Makes the writers.

        Args:
            directory: Where event files go; None for none.
            lines: Where records go; None for nowhere.
            split: `train` or `validation`.
            global_step: The step of a record.
            is_record: Whether a record ends at a step.
        """
        self._manager = orbit.utils.SummaryManager(
            str(directory) if directory else None, tf.summary.scalar, global_step=global_step
        )
        self._lines, self._split = lines, split
        self._global_step, self._is_record = global_step, is_record

    def summary_writer(self, relative_path: str = "") -> Any:
        """Returns the writer that is active inside steps."""
        return self._manager.summary_writer(relative_path)

    def write_summaries(self, summary_dict: Mapping[str, Any]) -> None:
        """Writes one record.

        Args:
            summary_dict: Name to value, nested for further event files.
        """
        step = int(self._global_step.numpy())
        if not self._is_record(step):
            return
        self._manager.write_summaries(_scalars(summary_dict))
        if self._lines is not None:
            record = {"step": step, "split": self._split, "time": round(time.time(), 3)}
            self._lines.write({**record, **_flat(summary_dict)})

    def flush(self) -> None:
        """Writes out what is buffered, where a record ended."""
        if self._is_record(int(self._global_step.numpy())):
            self._manager.flush()


def _scalars(logs: Mapping[str, Any]) -> dict[str, Any]:
    nested = {key: _scalars(value) for key, value in logs.items() if isinstance(value, Mapping)}
    return {**{k: v for k, v in logs.items() if np.ndim(v) == 0 and k not in nested}, **nested}


def _flat(logs: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in logs.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}/"))
        elif np.ndim(value) == 0:
            flat[f"{prefix}{key}"] = value
    return flat
