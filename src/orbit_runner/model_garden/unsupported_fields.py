"""Settings of Model Garden 2.20 that have no effect, found by reading its code.

A value that differs from the registered experiment's is reported as a note, or as an error under
--strict.
"""

from __future__ import annotations

_NOTHING = "nothing in Model Garden reads it"
_BY_NAME = "backbone.vit.model_name decides it"

# Maps the class that declares a field to the name of the field and the reason.
DEAD: dict[str, dict[str, str]] = {
    "nlp.configs.bert.PretrainerConfig": {
        "mlm_output_weights_use_proj": _NOTHING,
    },
    "nlp.configs.encoders.XLNetEncoderConfig": {
        "same_length": "build_encoder does not pass it to XLNetBase",
    },
    "nlp.configs.encoders.FunnelEncoderConfig": {
        "embedding_layer": "build_encoder passes its own argument of that name, not the field",
    },
    "nlp.configs.encoders.KernelEncoderConfig": {
        "embedding_size": 'not read in the "kernel" branch of build_encoder',
    },
    "nlp.configs.encoders.ReuseEncoderConfig": {
        "embedding_size": 'not read in the "reuse" branch',
        "output_range": 'not read in the "reuse" branch',
    },
    "projects.centernet.configs.centernet.CenterNetDetectionGenerator": {
        "use_reduction_sum": _NOTHING,
    },
    "projects.centernet.configs.backbones.Hourglass": {
        "activation": "build_hourglass takes norm_activation.activation",
    },
    "projects.centernet.configs.centernet.DataConfig": {
        "file_type": "dataset_fn is TFRecordDataset, fixed",
    },
    "projects.detr.configs.detr.Losses": {
        "l2_weight_decay": "DETR's build_model makes no regulariser",
    },
    "projects.detr.configs.detr.DataConfig": {
        "dtype": "neither the task nor detr_input.Parser reads it",
    },
    "projects.maxvit.configs.backbones.MaxViT": {
        "num_heads": "build_maxvit does not pass it (heads follow from head_size)",
    },
    "projects.volumetric_models.configs.semantic_segmentation_3d.Losses": {
        "loss_type": "build_losses has metric_type='adaptive' fixed",
    },
    "projects.volumetric_models.configs.semantic_segmentation_3d.DataConfig": {
        "output_size": "the task reads input_size, num_classes, num_channels, keys and dtypes only",
    },
    "projects.volumetric_models.configs.semantic_segmentation_3d.SemanticSegmentationModel3D": {
        "min_level": "factory and builders do not read it (model_id does)",
        "max_level": "factory and builders do not read it (model_id does)",
    },
    "projects.volumetric_models.configs.backbones.UNet3D": {
        "kernel_size": "build_unet3d does not pass it",
    },
    "projects.volumetric_models.configs.decoders.UNet3DDecoder": {
        "kernel_size": "build_unet_3d_decoder does not pass it",
    },
    "projects.yolo.configs.darknet_classification.ImageClassificationTask": {
        "gradient_clip_norm": _NOTHING,
        "logging_dir": "Task.logging_dir comes from the argument, never from the config",
    },
    "projects.yolo.configs.yolo.YoloTask": {
        "gradient_clip_norm": "no clipping in its train_step",
    },
    "projects.yolo.configs.yolov7.YoloV7Task": {
        "gradient_clip_norm": "no clipping in its train_step",
    },
    "projects.yolo.configs.yolo.DataConfig": {
        "tfds_download": _NOTHING,
        "seed": "the task sets a seed of its own, 1000",
    },
    "projects.yolo.configs.yolo.YoloDetectionGenerator": {
        "apply_nms": "neither build_yolo_detection_generator nor build_yolov7_... passes it",
    },
    "projects.yolo.configs.yolov7.YoloV7Head": {
        "num_anchors": "build_yolov7 takes the number from anchor_boxes",
    },
    "vision.configs.common.MixupAndCutmix": {
        "switch_prob": "both constructions (image, video) leave it out",
    },
    "vision.configs.common.RandAugment": {
        "magnitude_std": "all four constructions leave it out",
    },
    "vision.configs.image_classification.DataConfig": {
        "crop_area_range": "the task does not pass it to the parser",
        "aug_policy": _NOTHING,
        "randaug_magnitude": _NOTHING,
        "decoder": "the task has one decoder, and reads no other",
    },
    "vision.configs.image_classification.ImageClassificationTask": {
        "model_output_keys": _NOTHING,
    },
    "vision.configs.maskrcnn.Parser": {
        "num_channels": "task and parser do not read it",
        "match_threshold": "the parser takes the threshold of that name with rpn_ before it",
        "unmatched_threshold": "the parser takes the threshold of that name with rpn_ before it",
        "pad": "looked at only when the experiment is registered, and has to be true",
        "keep_aspect_ratio": "looked at only when the experiment is registered, and has to be true",
    },
    "vision.configs.retinanet.Parser": {
        "num_channels": "task and parser do not read it",
        "aug_policy": _NOTHING,
    },
    "vision.configs.retinanet.DetectionGenerator": {
        "decode_boxes": "build_retinanet does not pass it (nor does qat's factory)",
    },
    "vision.configs.semantic_segmentation.DataConfig": {
        "aug_policy": _NOTHING,
        "decoder": "the task has one decoder, and reads no other",
    },
    "vision.configs.semantic_segmentation.SegmentationHead": {
        "decoder_min_level": "build_segmentation_model does not pass it",
        "decoder_max_level": "build_segmentation_model does not pass it",
    },
    "vision.configs.video_classification.DataConfig": {
        "name": "no task or parser reads params.name",
        "split": _NOTHING,
        "variant_name": _NOTHING,
        "compressed_input": _NOTHING,
        "data_format": _NOTHING,
        "num_examples": "read only when the experiment is registered, to count steps",
    },
    "vision.configs.backbones.VisionTransformer": {
        "hidden_size": _BY_NAME,
        "patch_size": _BY_NAME,
    },
    "vision.configs.backbones.Transformer": {
        "mlp_dim": _BY_NAME,
        "num_heads": _BY_NAME,
        "num_layers": _BY_NAME,
    },
}


def why_dead(cls: type, field: str) -> str:
    """Returns why a field of a Model Garden config class has no effect, or "" if it has one.

    The field may be inherited.
    """
    for base in cls.__mro__:
        path = f"{base.__module__}.{base.__qualname__}".removeprefix("official.")
        if field in DEAD.get(path, {}):
            return DEAD[path][field]
    return ""
