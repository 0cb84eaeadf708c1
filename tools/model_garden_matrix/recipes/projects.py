"""Recipes for the detection projects: YOLO and its variants, CenterNet, DETR."""

from __future__ import annotations

from pathlib import Path

from tools.model_garden_matrix.data.projects import prepare_coco
from tools.model_garden_matrix.data.vision import (
    write_boxed_images,
    write_classified_images,
    write_coco_annotations,
)
from tools.model_garden_matrix.recipes.vision_common import (
    SGD,
    Overrides,
    Recipe,
    data,
    merge_overrides,
    recipe,
    short_run_overrides,
)

# YOLO's coarsest level is the fifth: it halves the side five times.
_SIDE = 64
# Including background, 0. Suppression is unrolled over the classes, so there are only a few.
_CLASSES = 5
# Three anchors per level, the smallest first.
_SIZES = ((4, 5), (7, 12), (13, 9), (12, 25), (25, 18), (24, 30), (47, 36), (40, 50), (60, 58))
_DARKNET = {"darknet": {"width_scale": 0.125, "depth_scale": 0.25}}
_FOUND = {"max_boxes": 10, "pre_nms_points": 100}


def _boxes(folder: Path, parser: Overrides | None = None) -> Overrides:
    """Writes images with boxes for both data sections, which use the same parser settings."""
    sections = {}
    for split in ("train", "validation"):
        path = write_boxed_images(folder / split, side=_SIDE, classes=_CLASSES)
        sections[f"{split}_data"] = {
            **data(path, batch=1),
            **({"parser": parser} if parser else {}),
        }
    return sections


def _annotations(folder: Path) -> Overrides:
    path = write_coco_annotations(folder / "validation.json", side=_SIDE, classes=_CLASSES)
    return {"annotation_file": path}


def _anchors(each: int) -> Overrides:
    boxes = [{"box": list(size)} for size in _SIZES for _ in range(each)]
    return {"boxes": boxes, "anchors_per_scale": 3 * each}


def _yolo(folder: Path, trainer: Overrides | None = None) -> Overrides:
    """Returns overrides with which an anchor matches in every slot.

    On a CPU, YOLO's loss fails at the first slot without a match. A level has up to six slots per
    box. Six anchors, none of which is rejected, fill them.
    """
    sections = _boxes(folder, {"max_num_instances": 2, "anchor_thresh": 1000.0})
    # In training, cropping may remove boxes, but at least one remains.
    sections["train_data"] = merge_overrides(
        sections["train_data"], {"parser": {"max_num_instances": 1}}
    )
    model = {
        "num_classes": _CLASSES,
        "input_size": [_SIDE, _SIDE, 3],
        "backbone": _DARKNET,
        "detection_generator": _FOUND,
        "anchor_boxes": _anchors(each=2),
    }
    return short_run_overrides({"model": model, **sections}, trainer)


def _yolov7(folder: Path, trainer: Overrides | None = None) -> Overrides:
    # Mosaics of nine tiles would triple the input graph for a fifth of the images. Mosaics of
    # four tiles and mixing remain enabled.
    parser = {"max_num_instances": 10, "mosaic": {"mosaic9_frequency": 0.0}}
    # The variants are tables of layers, with no setting for their width.
    model = {
        "num_classes": _CLASSES,
        "input_size": [_SIDE, _SIDE, 3],
        "detection_generator": _FOUND,
        "anchor_boxes": _anchors(each=1),
    }
    return short_run_overrides({"model": model, **_boxes(folder, parser)}, trainer)


def _darknet_classification(folder: Path) -> Overrides:
    sections = {
        f"{split}_data": data(write_classified_images(folder / split, side=_SIDE, classes=_CLASSES))
        for split in ("train", "validation")
    }
    model = {"num_classes": _CLASSES, "input_size": [_SIDE, _SIDE, 3], "backbone": _DARKNET}
    # The registered config sets the learning rate one level too high, where nothing reads it, and
    # does not set the lengths of decay and warm-up.
    schedule = {
        "learning_rate": {"polynomial": {"initial_learning_rate": 0.1, "decay_steps": 2}},
        "warmup": {"linear": {"warmup_steps": 1}},
    }
    return short_run_overrides({"model": model, **sections}, {"optimizer_config": schedule})


def _centernet(folder: Path) -> Overrides:
    model = {
        "num_classes": _CLASSES - 1,
        "input_size": [_SIDE, _SIDE, 3],
        # The number of boxes per image: on a CPU, the loss fails at the first slot without a box.
        "max_num_instances": 2,
        "backbone": {"hourglass": {"model_id": 20, "input_channel_dims": 8}},
        "detection_generator": {"max_detections": 10},
    }
    return short_run_overrides({"model": model, **_annotations(folder), **_boxes(folder)})


# The number of queries stays 100, because boxes are padded to that number.
_DETR = {
    "input_size": [_SIDE, _SIDE, 3],
    "hidden_size": 32,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "backbone": {"resnet": {"model_id": 10, "depth_multiplier": 0.25}},
}


def _detr_tfrecord(folder: Path) -> Overrides:
    sections = _boxes(folder)
    for section in sections.values():
        del section["dtype"]  # DETR ignores it.
    return short_run_overrides({"model": _DETR, **_annotations(folder), **sections})


def _detr_tfds(folder: Path, section: Overrides) -> Overrides:
    read = {
        "tfds_data_dir": prepare_coco(folder / "tfds", side=_SIDE, classes=_CLASSES - 1),
        "global_batch_size": 1,
        "shuffle_buffer_size": 4,
        **section,
    }
    # Without an annotation file, the evaluator converts an array of one element to an int, which
    # NumPy 2.4 rejects.
    sections = {"train_data": dict(read), "validation_data": dict(read)}
    return short_run_overrides({"model": _DETR, **_annotations(folder), **sections})


def _no_data(folder: Path) -> Overrides:
    return short_run_overrides({})


RECIPES: dict[str, Recipe] = {
    "yolo": recipe(_yolo, trainer=SGD),
    "scaled_yolo": _yolo,
    "yolo_darknet": _yolo,
    "darknet_classification": _darknet_classification,
    "yolov7": recipe(_yolov7, trainer=SGD),
    "coco_yolov7": _yolov7,
    "coco_yolov7_nano": _yolov7,
    "coco_yolov7_pico": _yolov7,
    "coco_yolov7tiny": _yolov7,
    "coco_yolov7x": _yolov7,
    "coco91_yolov7tiny": _yolov7,
    "centernet_hourglass_coco": _centernet,
    "detr_coco": recipe(
        _detr_tfds,
        # Eleven sizes, because one of eleven is drawn.
        section={"output_size": [_SIDE, _SIDE], "resize_scales": list(range(32, 43))},
    ),
    "detr_coco_tfds": recipe(_detr_tfds, section={}),
    "detr_coco_tfrecord": _detr_tfrecord,
    # The package lacks some of their modules, so they would never read data.
    "maskconver_coco": _no_data,
    "maskconver_seg_cityscapes": _no_data,
    "maskconver_seg_pascal": _no_data,
    "multiscale_maskconver_coco": _no_data,
    "panoptic_deeplab_mobilenetv3_large_coco": _no_data,
    "panoptic_deeplab_mobilenetv3_small_coco": _no_data,
    "panoptic_deeplab_resnet_coco": _no_data,
    "panoptic_fpn_coco": _no_data,
}
