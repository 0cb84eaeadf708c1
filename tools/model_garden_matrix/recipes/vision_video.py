"""Recipes for video: a few small frames."""

from __future__ import annotations

from pathlib import Path

from tools.model_garden_matrix.data.vision import write_videos
from tools.model_garden_matrix.data.vision_ucf101 import write_ucf101
from tools.model_garden_matrix.recipes.vision_common import (
    SGD,
    Overrides,
    Recipe,
    data,
    merge_overrides,
    recipe,
    short_run_overrides,
)

_CLASSES = 5
_SHAPE = [4, 32, 32, 3]
_SMALL = {"feature_shape": _SHAPE, "min_image_size": 32}
_MOVINET = {"model": {"backbone": {"movinet": {"model_id": "t0"}}}}
_PROJECTION = {"model": {"hidden_dim": 16, "projection_dim": 8}}
# Linear evaluation projects onto the classes. It still uses several clips and crops per video.
_LINEAR: Overrides = {
    "model": {"hidden_dim": 16, "projection_dim": _CLASSES},
    "validation_data": {"num_test_clips": 2},
}


def _video(
    folder: Path, task: Overrides | None = None, trainer: Overrides | None = None
) -> Overrides:
    sides = {"frames": 8, "height": 40, "width": 48, "classes": _CLASSES}
    base = {
        "init_checkpoint": None,
        "train_data": _examples(write_videos(folder / "train", **sides)),
        "validation_data": _examples(write_videos(folder / "validation", **sides)),
    }
    return short_run_overrides(merge_overrides(base, task or {}), trainer)


def _examples(path: str) -> Overrides:
    return {**data(path), **_SMALL, "num_classes": _CLASSES}


def _ucf101(folder: Path) -> Overrides:
    source = {
        "tfds_data_dir": write_ucf101(folder),
        "global_batch_size": 2,
        "shuffle_buffer_size": 4,
        **_SMALL,
    }
    return short_run_overrides({"train_data": source, "validation_data": dict(source)})


RECIPES: dict[str, Recipe] = {
    "video_classification": recipe(_video, trainer=SGD),
    "video_classification_ucf101": _ucf101,
    "video_classification_kinetics400": _video,
    "video_classification_kinetics600": _video,
    "video_classification_kinetics700": _video,
    "video_classification_kinetics700_2020": _video,
    "movinet_kinetics600": recipe(_video, task=_MOVINET),
    "video_ssl_pretrain_kinetics400": recipe(_video, task=_PROJECTION),
    "video_ssl_pretrain_kinetics600": recipe(_video, task=_PROJECTION),
    "video_ssl_linear_eval_kinetics400": recipe(_video, task=_LINEAR),
    "video_ssl_linear_eval_kinetics600": recipe(_video, task=_LINEAR),
}
