"""Recipes for the mock task, and for videos in the form of features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.model_garden_matrix.data.text_frames import write_videos
from tools.model_garden_matrix.recipes.nlp_parts import Tree, short_run_overrides

FRAMES = 4
CLASSES = 5
FEATURES = {"rgb": 8, "audio": 4}


def mock(folder: Path) -> Tree:
    """Trains on the task's own data, with an optimizer, which the registered config lacks."""
    rate = {"type": "constant", "constant": {"learning_rate": 0.1}}
    return short_run_overrides({}, {"optimizer": {"type": "sgd"}, "learning_rate": rate})


def youtube8m(folder: Path) -> Tree:
    """Labels videos. The installed package has no reader for this format."""
    path = write_videos(folder / "videos.tfrecord", 4, FRAMES, FEATURES, CLASSES)
    sizes = {
        "input_path": path,
        "feature_sizes": list(FEATURES.values()),
        "num_classes": CLASSES,
        "max_frames": FRAMES,
        "num_sample_frames": FRAMES,
        "global_batch_size": 2,
    }
    backbone = {"type": "dbof", "dbof": {"cluster_size": 8, "hidden_size": 8}}
    return short_run_overrides(
        {
            "model": {"backbone": backbone, "head": {"type": "moe", "moe": {"num_mixtures": 2}}},
            "train_data": sizes,
            "validation_data": sizes,
        }
    )


RECIPES: dict[str, Callable[[Path], Tree]] = {"mock": mock, "yt8m_experiment": youtube8m}
