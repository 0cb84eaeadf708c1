"""NeuMF on few synthetic choices, shortened; and a set in MovieLens' own format."""

from pathlib import Path
from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data import synthetic
from tests.support.configs import SHORT_RUN, config_of

_BASE = {
    "task.name": "recommendation",
    "task.model.name": "neumf",
    "task.model.mf_dim": 4,
    "task.model.layers": [8, 4],
    "task.train_data.source": "synthetic",
    "task.train_data.synthetic.num_examples": 2000,
    "task.train_data.synthetic.num_items": 100,
    "task.train_data.global_batch_size": 64,
    "task.validation_data.source": "synthetic",
    "task.validation_data.synthetic.num_examples": 2000,
    "task.validation_data.synthetic.num_items": 100,
    "task.validation_data.global_batch_size": 16,
    "task.validation_data.num_eval_negatives": 20,
    "task.top_k": 5,
    **SHORT_RUN,
}


def ratings_config(**changes: Any) -> ExperimentConfig:
    """Returns the config; `__` in a name stands for a dot."""
    return config_of(_BASE, **changes)


def write_100k(folder: Path, num_examples: int = 2000, num_items: int = 100) -> Path:
    """Writes synthetic choices as MovieLens 100K has them; ids are ten times as large."""
    ratings = synthetic.load_ratings(num_examples=num_examples, num_items=num_items)
    rows = zip(ratings.users, ratings.items, ratings.times, strict=True)
    text = "".join(
        f"{user * 10}\t{item * 10}\t{item % 5 + 1}\t{time}\n" for user, item, time in rows
    )
    (folder / "ml-100k").mkdir(parents=True)
    path = folder / "ml-100k" / "u.data"
    path.write_text(text)
    return path
