"""Recipes for detection and instance segmentation: few classes, few proposals, thin heads."""

from __future__ import annotations

from pathlib import Path

from tools.model_garden_matrix.data.vision import write_boxed_images, write_coco_annotations
from tools.model_garden_matrix.recipes.vision_common import (
    SGD,
    Overrides,
    Recipe,
    data,
    merge_overrides,
    recipe,
    short_run_overrides,
)

# The coarsest level is the seventh: it halves the side seven times.
_CLASSES, _SIDE = 5, 128
_RESNET = {"resnet": {"model_id": 10, "depth_multiplier": 0.25}}
_SPINENET = {"spinenet": {"model_id": "49S", "max_level": 5}}
_SPINENET_MOBILE = {"spinenet_mobile": {"model_id": "49XS", "max_level": 5}}
_MAXVIT = {
    "maxvit": {
        "model_name": "maxvit-tiny-for-test",
        "num_blocks": [1, 1, 1, 1],
        "hidden_size": [32, 32, 32, 32],
        "window_size": 4,
        "grid_size": 4,
    }
}
# SpineNet has the same blocks with any number of levels, but fewer levels are faster to trace.
_LEVELS = {"max_level": 5}
_FPN = {"decoder": {"fpn": {"num_filters": 16}}}
# Without a threshold, an untrained network detects something, so the evaluator has input.
_FOUND = {"pre_nms_top_k": 20, "pre_nms_score_threshold": 0.0, "max_num_detections": 10}
_RCNN = {
    "rpn_head": {"num_filters": 16},
    "detection_head": {"num_convs": 1, "num_filters": 16, "fc_dims": 16},
    "roi_generator": {
        "pre_nms_top_k": 20,
        "num_proposals": 10,
        "test_pre_nms_top_k": 20,
        "test_num_proposals": 10,
    },
    "roi_sampler": {"num_sampled_rois": 8},
}
_MASKS = {
    "mask_head": {"num_convs": 1, "num_filters": 16},
    "mask_sampler": {"num_sampled_masks": 4},
}
_RETINA = {"head": {"num_convs": 1, "num_filters": 16}}


def _detection(
    folder: Path, backbone: Overrides, parts: list[Overrides], trainer: Overrides | None = None
) -> Overrides:
    train = write_boxed_images(folder / "train", side=_SIDE, classes=_CLASSES)
    validation = write_boxed_images(folder / "validation", side=_SIDE, classes=_CLASSES)
    model: Overrides = {
        "num_classes": _CLASSES,
        "input_size": [_SIDE, _SIDE, 3],
        "backbone": backbone,
        "detection_generator": _FOUND,
    }
    for part in parts:
        model = merge_overrides(model, part)
    task = {
        "init_checkpoint": None,
        "annotation_file": write_coco_annotations(
            folder / "validation.json", side=_SIDE, classes=_CLASSES
        ),
        "model": model,
        "train_data": {**data(train), "parser": {"max_num_instances": 10}},
        "validation_data": {**data(validation), "parser": {"max_num_instances": 10}},
    }
    return short_run_overrides(task, trainer)


_MASK_RCNN = [_RCNN, _MASKS]
_SPINENET_RETINA, _SPINENET_RCNN = [_LEVELS, _RETINA], [_LEVELS, *_MASK_RCNN]

RECIPES: dict[str, Recipe] = {
    "retinanet": recipe(_detection, backbone=_RESNET, parts=[_FPN, _RETINA], trainer=SGD),
    "retinanet_resnetfpn_coco": recipe(_detection, backbone=_RESNET, parts=[_FPN, _RETINA]),
    "retinanet_spinenet_coco": recipe(_detection, backbone=_SPINENET, parts=_SPINENET_RETINA),
    "retinanet_mobile_coco": recipe(_detection, backbone=_SPINENET_MOBILE, parts=_SPINENET_RETINA),
    "retinanet_mobile_coco_qat": recipe(
        _detection, backbone=_SPINENET_MOBILE, parts=_SPINENET_RETINA
    ),
    "retinanet_maxvit_coco": recipe(_detection, backbone=_MAXVIT, parts=[_FPN, _RETINA]),
    "fasterrcnn_resnetfpn_coco": recipe(_detection, backbone=_RESNET, parts=[_FPN, _RCNN]),
    "maskrcnn_resnetfpn_coco": recipe(_detection, backbone=_RESNET, parts=[_FPN, *_MASK_RCNN]),
    "maskrcnn_spinenet_coco": recipe(_detection, backbone=_SPINENET, parts=_SPINENET_RCNN),
    "maskrcnn_mobilenet_coco": recipe(
        _detection,
        backbone={"mobilenet": {"filter_size_scale": 0.25}},
        parts=[_FPN, *_MASK_RCNN],
    ),
    "cascadercnn_spinenet_coco": recipe(_detection, backbone=_SPINENET, parts=_SPINENET_RCNN),
    "rcnn_maxvit_coco": recipe(_detection, backbone=_MAXVIT, parts=[_LEVELS, _FPN, *_MASK_RCNN]),
    "deep_mask_head_rcnn_resnetfpn_coco": recipe(
        _detection, backbone=_RESNET, parts=[_FPN, *_MASK_RCNN]
    ),
    "deep_mask_head_rcnn_spinenet_coco": recipe(
        _detection, backbone=_SPINENET, parts=_SPINENET_RCNN
    ),
}
