"""English and German sentences in text files, and an experiment that tells them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from tests.support.configs import SHORT_RUN, config_of
from tests.support.translations import sentences, write_pairs

_BASE: dict[str, Any] = {
    "task.name": "tabular",
    "task.model.name": "mlp",
    "task.model.hidden_units": [],
    "task.model.embedding_width": 8,
    "task.features.text": [{"column": "text", "max_length": 4}],
    "task.target": "label",
    "task.train_data.source": "text_files",
    "task.train_data.files": {"english": "train.en.gz", "german": "train.de*"},
    "task.train_data.global_batch_size": 8,
    "task.validation_data.source": "text_files",
    "task.validation_data.files": {"english": "val.en", "german": "val.de"},
    "task.validation_data.global_batch_size": 16,
    **SHORT_RUN,
    "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.05,
}


def write_texts(folder: Path, train: int = 40, validation: int = 9) -> Path:
    """Writes `train.en.gz`, `train.de.gz`, `val.en` and `val.de`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_pairs(folder, "train", sentences(train, 0), packed=True)
    write_pairs(folder, "val", sentences(validation, 1), packed=False)
    return folder


def text_config(folder: Path | str, **changes: Any) -> ExperimentConfig:
    """Returns the config; `__` in a name stands for a dot."""
    both = {f"task.{section}.data_dir": folder for section in ("train_data", "validation_data")}
    return config_of(_BASE | both, **changes)
