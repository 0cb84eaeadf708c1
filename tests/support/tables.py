"""A small table in each format, and an experiment that trains on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from orbit_runner.config.schema.experiment import ExperimentConfig
from tests.support.configs import SHORT_RUN, config_of
from tests.support.hugging_face import write_arrow

_BASE: dict[str, Any] = {
    "task.name": "tabular",
    "task.model.name": "mlp",
    "task.model.hidden_units": [8],
    "task.model.dropout_rate": 0.2,
    "task.target": "y",
    "task.features": {"numeric": ["size", "age"], "categorical": ["color"]},
    "task.split.fractions": {"train": 0.7, "validation": 0.3},
    "task.train_data.source": "csv",
    "task.train_data.global_batch_size": 8,
    "task.validation_data.source": "csv",
    "task.validation_data.global_batch_size": 16,
    **SHORT_RUN,
}
Rows = Sequence[Mapping[str, Any]]


def table_config(path: Path | str, **changes: Any) -> ExperimentConfig:
    """Returns the config; `__` in a name stands for a dot."""
    both = {f"task.{section}.input_path": path for section in ("train_data", "validation_data")}
    if "synthetic" in changes.values():
        both = {}
    return config_of(_BASE | both, **changes)


def make_rows(count: int = 100) -> list[dict[str, Any]]:
    """Returns rows in which some values are missing, and `y` depends on the others."""
    random = np.random.default_rng(3)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        size = round(float(random.normal(50, 20)), 3)
        color = ("red", "green", "blue, dark")[number % 3]
        rows.append(
            {
                "id": number,
                "size": size,
                "age": None if number % 9 == 4 else int(random.integers(1, 90)),
                "color": None if number % 11 == 7 else color,
                "y": "big" if size + 10 * (color == "red") > 50 else "small",
                "price": round(3 * size + float(random.normal()), 3),
                "w": 1 + number % 3,
            }
        )
    return rows


def write_csv(path: Path, rows: Rows, delimiter: str = ",") -> Path:
    """Writes rows with a header; None is an empty cell."""
    lines = [delimiter.join(rows[0])]
    for row in rows:
        cells = ["" if value is None else str(value) for value in row.values()]
        lines.append(delimiter.join(f'"{c}"' if delimiter in c else c for c in cells))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_jsonl(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: Rows) -> Path:
    parquet.write_table(
        pyarrow.Table.from_pylist([dict(row) for row in rows]), path, row_group_size=7
    )
    return path


def _columns(rows: Rows) -> dict[str, np.ndarray]:
    arrays = {
        name: np.array([np.nan if row[name] is None else row[name] for row in rows])
        for name in rows[0]
        if name != "color"
    }
    return {**arrays, "color": np.array([row["color"] or "" for row in rows])}


def write_npz(path: Path, rows: Rows) -> Path:
    np.savez(path, **_columns(rows))
    return path


def write_arrow_rows(path: Path, rows: Rows) -> Path:
    return write_arrow(path, pyarrow.Table.from_pylist([dict(row) for row in rows]), rows=7)


WRITERS = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
    "hugging_face": write_arrow_rows,
    "npz": write_npz,
}
