"""Recipes for semantic segmentation of images and volumes."""

from __future__ import annotations

from pathlib import Path

from tools.model_garden_matrix.data.vision import write_segmented_images, write_volumes
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
_RESNET = {"backbone": {"resnet": {"model_id": 10, "depth_multiplier": 0.25}}}
_DILATED = {"backbone": {"dilated_resnet": {"model_id": 50}}}
_MOBILENET = {"backbone": {"mobilenet": {"filter_size_scale": 0.25}}}
_MAXVIT = {
    "backbone": {
        "maxvit": {
            "model_name": "maxvit-tiny-for-test",
            "num_blocks": [1, 1, 1, 1],
            "hidden_size": [32, 32, 32, 32],
            "window_size": 4,
            "grid_size": 4,
        }
    }
}
_FPN = {"decoder": {"fpn": {"num_filters": 16}}}
_ASPP = {"decoder": {"aspp": {"num_filters": 16}}}
_ATROUS = {"decoder": {"aspp": {"num_filters": 16, "dilation_rates": [1, 2, 3]}}}
# The decoder pools over a whole training crop.
_CROP = {"decoder": {"aspp": {"pool_kernel_size": [32, 64]}}}
# Quantization requires a fixed input size, and layers that pass tensors instead of dicts.
_TENSOR = {"decoder": {"aspp": {"output_tensor": True}}}
_HEAD = {"head": {"num_filters": 16}}


def _segmentation(
    folder: Path, parts: list[Overrides], task: Overrides, trainer: Overrides | None = None
) -> Overrides:
    sides = {"height": 64, "width": 128, "classes": _CLASSES}
    base: Overrides = {
        "init_checkpoint": None,
        "model": {"num_classes": _CLASSES},
        "train_data": data(write_segmented_images(folder / "train", **sides)),
        "validation_data": data(write_segmented_images(folder / "validation", **sides)),
    }
    for part in parts:
        base = merge_overrides(base, {"model": part})
    return short_run_overrides(merge_overrides(base, task), trainer)


def _square(side: int, *, padded: bool) -> Overrides:
    truth = {"groundtruth_padded_size": [64, 128]} if padded else {}
    return {
        "train_data": {"output_size": [side, side]},
        "validation_data": {"output_size": [side, side], **truth},
    }


def _fixed_size(side: int, *, padded: bool) -> Overrides:
    return merge_overrides(_square(side, padded=padded), {"model": {"input_size": [side, side, 3]}})


_PASCAL = _square(64, padded=True)
_CITYSCAPES: Overrides = {
    "train_data": {"output_size": [64, 128], "crop_size": [32, 64]},
    "validation_data": {"output_size": [64, 128]},
}
_PASCAL_QAT = _fixed_size(64, padded=True)
_CITYSCAPES_QAT: Overrides = {
    "model": {
        "input_size": [64, 128, 3],
        "decoder": {"aspp": {"pool_kernel_size": [64, 128]}},
    },
    "train_data": {"output_size": [64, 128], "crop_size": [64, 128]},
    "validation_data": {"output_size": [64, 128]},
}
_FLAT = [_MOBILENET, _ASPP, _HEAD]
_WIDE = [*_FLAT, _CROP]
_FLAT_QAT = [*_FLAT, _TENSOR]


def _unet3d(folder: Path) -> Overrides:
    side, channels, classes = 8, 2, 2
    size = {"input_size": [side, side, side], "num_channels": channels, "num_classes": classes}
    sides = {"side": side, "channels": channels, "classes": classes}
    task = {
        "model": {
            **size,
            "backbone": {"unet_3d": {"base_filters": 4}},
            "head": {"num_filters": 4},
        },
        "train_data": {**data(write_volumes(folder / "train", **sides)), **size},
        "validation_data": {**data(write_volumes(folder / "validation", **sides)), **size},
    }
    return short_run_overrides(task)


RECIPES: dict[str, Recipe] = {
    "semantic_segmentation": recipe(
        _segmentation, parts=[_RESNET, _HEAD], task=_fixed_size(64, padded=False), trainer=SGD
    ),
    "seg_deeplabv3_pascal": recipe(_segmentation, parts=[_DILATED, _ATROUS, _HEAD], task=_PASCAL),
    "seg_deeplabv3plus_pascal": recipe(
        _segmentation, parts=[_DILATED, _ATROUS, _HEAD], task=_PASCAL
    ),
    "seg_deeplabv3plus_cityscapes": recipe(
        _segmentation, parts=[_DILATED, _ATROUS, _HEAD, _CROP], task=_CITYSCAPES
    ),
    "seg_resnetfpn_pascal": recipe(
        _segmentation, parts=[_RESNET, _FPN, _HEAD], task=_fixed_size(128, padded=True)
    ),
    "mnv2_deeplabv3_pascal": recipe(_segmentation, parts=_FLAT, task=_PASCAL),
    "mnv2_deeplabv3_cityscapes": recipe(_segmentation, parts=_WIDE, task=_CITYSCAPES),
    "mnv2_deeplabv3plus_cityscapes": recipe(_segmentation, parts=_WIDE, task=_CITYSCAPES),
    "mnv2_deeplabv3_pascal_qat": recipe(_segmentation, parts=_FLAT_QAT, task=_PASCAL_QAT),
    "mnv2_deeplabv3_cityscapes_qat": recipe(_segmentation, parts=_FLAT_QAT, task=_CITYSCAPES_QAT),
    "mnv2_deeplabv3plus_cityscapes_qat": recipe(
        _segmentation, parts=_FLAT_QAT, task=_CITYSCAPES_QAT
    ),
    "maxvit_seg_pascal": recipe(
        _segmentation, parts=[_MAXVIT, _FPN, _HEAD], task=_fixed_size(128, padded=True)
    ),
    "maxvit_seg_coco": recipe(
        _segmentation, parts=[_MAXVIT, _FPN, _HEAD], task=_fixed_size(128, padded=True)
    ),
    "seg_unet3d_test": _unet3d,
}
