"""Recipes for image classification: small images, the smallest network of each family."""

from __future__ import annotations

from pathlib import Path

from tools.model_garden_matrix.data.vision import write_classified_images
from tools.model_garden_matrix.recipes.vision_common import (
    SGD,
    Overrides,
    Recipe,
    data,
    recipe,
    short_run_overrides,
)

_CLASSES = 10
_RESNET = {"resnet": {"model_id": 10, "depth_multiplier": 0.25}}
# Quantization supports only bottleneck blocks; ResNet-50 is the smallest network with them.
_BOTTLENECKS = {"resnet": {"model_id": 50, "depth_multiplier": 0.25}}
_MOBILENET = {"mobilenet": {"filter_size_scale": 0.25}}
_VIT = {"vit": {"model_name": "vit-ti16"}}
_VIT_PRETRAIN = {"vit": {"model_name": "vit-ti16", "representation_size": 32}}
# The window and grid sizes must divide the sides of the features: 16, 8, 4 and 2.
_MAXVIT = {
    "maxvit": {
        "model_name": "maxvit-tiny-for-test",
        "num_blocks": [1, 1, 1, 1],
        "hidden_size": [32, 32, 32, 32],
        "representation_size": 32,
        "window_size": 2,
        "grid_size": 2,
    }
}


def _classification(
    folder: Path, backbone: Overrides, side: int = 32, trainer: Overrides | None = None
) -> Overrides:
    train = write_classified_images(folder / "train", side=side, classes=_CLASSES)
    validation = write_classified_images(folder / "validation", side=side, classes=_CLASSES)
    task = {
        "init_checkpoint": None,
        "model": {
            "num_classes": _CLASSES,
            "input_size": [side, side, 3],
            "backbone": backbone,
        },
        "train_data": data(train),
        "validation_data": data(validation),
    }
    return short_run_overrides(task, trainer)


RECIPES: dict[str, Recipe] = {
    "image_classification": recipe(_classification, backbone=_RESNET, trainer=SGD),
    "resnet_imagenet": recipe(_classification, backbone=_RESNET),
    "resnet_rs_imagenet": recipe(_classification, backbone=_RESNET),
    "revnet_imagenet": recipe(_classification, backbone={"revnet": {"model_id": 38}}),
    "mobilenet_imagenet": recipe(_classification, backbone=_MOBILENET),
    "deit_imagenet_pretrain": recipe(_classification, backbone=_VIT_PRETRAIN),
    "vit_imagenet_pretrain": recipe(_classification, backbone=_VIT_PRETRAIN),
    "vit_imagenet_finetune": recipe(_classification, backbone=_VIT),
    "maxvit_imagenet": recipe(_classification, backbone=_MAXVIT, side=64),
    "resnet_imagenet_qat": recipe(_classification, backbone=_BOTTLENECKS),
    "mobilenet_imagenet_qat": recipe(_classification, backbone=_MOBILENET),
}
