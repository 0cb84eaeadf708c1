"""The tabular task on tables that TensorFlow Datasets has prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.tasks.tabular.sources import table_query
from tests.support.prepared_tables import write_table
from tests.support.tables import table_config

_SECTIONS = ("train_data", "validation_data")


pytestmark = pytest.mark.usefixtures("own_cache")


def rows_config(folder: Path, **changes: Any) -> ExperimentConfig:
    settings: dict[str, Any] = {"task__split": None}
    for section in _SECTIONS:
        settings |= {
            f"task__{section}__source": "tfds",
            f"task__{section}__tfds_name": "rows",
            f"task__{section}__tfds_data_dir": str(folder),
        }
    return table_config([], **{**settings, **changes})  # type: ignore[arg-type]


def sizes(config: ExperimentConfig) -> list[int]:
    return [table_query(config.task).part(section).size for section in _SECTIONS]  # type: ignore[arg-type]


def write(folder: Path) -> None:
    # Row 4, which has no label, is in a split that no section reads.
    write_table(folder, {"unlabeled": (5,), "train": (30, 20), "test": (9,)})


def test_sections_read_their_splits(tmp_path: Path) -> None:
    write(tmp_path)
    assert sizes(rows_config(tmp_path)) == [50, 9]
    assert sizes(rows_config(tmp_path, task__validation_data__tfds_split="train")) == [50, 50]
    split = {"fractions": {"train": 0.5, "validation": 0.5}}
    train, validation = sizes(rows_config(tmp_path, task__split=split))
    assert train + validation == 50
    assert list(rows_config(tmp_path).data.problems()) == []
    files = table_query(rows_config(tmp_path).task).data_files("train_data")  # type: ignore[arg-type]
    assert [row.digest[:7] for row in files] == ["sha256:"] * 2
