"""Settings of Model Garden 2.20 that have no effect, found by reading its code.

A value that differs from the registered experiment's is reported as a note, or as an error under
--strict.
"""

from __future__ import annotations

_NEVER_READ = "nothing in Model Garden reads it"
_SET_BY_MODEL_NAME = "backbone.vit.model_name determines it"

# Maps the class that declares a field to the name of the field and the reason.
UNUSED_FIELDS: dict[str, dict[str, str]] = {
    "nlp.configs.bert.PretrainerConfig": {
        "mlm_output_weights_use_proj": _NEVER_READ,
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
        "use_reduction_sum": _NEVER_READ,
    },
    "projects.centernet.configs.backbones.Hourglass": {
        "activation": "build_hourglass uses norm_activation.activation instead",
    },
    "projects.centernet.configs.centernet.DataConfig": {
        "file_type": "dataset_fn is always TFRecordDataset",
    },
    "projects.detr.configs.detr.Losses": {
        "l2_weight_decay": "DETR's build_model does not create a regularizer",
    },
    "projects.detr.configs.detr.DataConfig": {
        "dtype": "neither the task nor detr_input.Parser reads it",
    },
    "projects.maxvit.configs.backbones.MaxViT": {
        "num_heads": "build_maxvit does not pass it (head_size determines the heads)",
    },
    "projects.volumetric_models.configs.semantic_segmentation_3d.Losses": {
        "loss_type": "build_losses always uses metric_type='adaptive'",
    },
    "projects.volumetric_models.configs.semantic_segmentation_3d.DataConfig": {
        "output_size": "the task reads only input_size, num_classes, num_channels, keys and dtypes",
    },
    "projects.volumetric_models.configs.semantic_segmentation_3d.SemanticSegmentationModel3D": {
        "min_level": "the factory and the builders use model_id instead",
        "max_level": "the factory and the builders use model_id instead",
    },
    "projects.volumetric_models.configs.backbones.UNet3D": {
        "kernel_size": "build_unet3d does not pass it",
    },
    "projects.volumetric_models.configs.decoders.UNet3DDecoder": {
        "kernel_size": "build_unet_3d_decoder does not pass it",
    },
    "projects.yolo.configs.darknet_classification.ImageClassificationTask": {
        "gradient_clip_norm": _NEVER_READ,
        "logging_dir": "Task.logging_dir comes from the argument, never from the config",
    },
    "projects.yolo.configs.yolo.YoloTask": {
        "gradient_clip_norm": "its train_step does not clip gradients",
    },
    "projects.yolo.configs.yolov7.YoloV7Task": {
        "gradient_clip_norm": "its train_step does not clip gradients",
    },
    "projects.yolo.configs.yolo.DataConfig": {
        "tfds_download": _NEVER_READ,
        "seed": "the task always uses the seed 1000",
    },
    "projects.yolo.configs.yolo.YoloDetectionGenerator": {
        "apply_nms": "neither build_yolo_detection_generator nor build_yolov7_... passes it",
    },
    "projects.yolo.configs.yolov7.YoloV7Head": {
        "num_anchors": "build_yolov7 derives the number from anchor_boxes",
    },
    "vision.configs.common.MixupAndCutmix": {
        "switch_prob": "neither the image nor the video task passes it",
    },
    "vision.configs.common.RandAugment": {
        "magnitude_std": "none of the four constructor calls passes it",
    },
    "vision.configs.image_classification.DataConfig": {
        "crop_area_range": "the task does not pass it to the parser",
        "aug_policy": _NEVER_READ,
        "randaug_magnitude": _NEVER_READ,
        "decoder": "the task always uses the same decoder",
    },
    "vision.configs.image_classification.ImageClassificationTask": {
        "model_output_keys": _NEVER_READ,
    },
    "vision.configs.maskrcnn.Parser": {
        "num_channels": "neither the task nor the parser reads it",
        "match_threshold": "the parser uses rpn_match_threshold instead",
        "unmatched_threshold": "the parser uses rpn_unmatched_threshold instead",
        "pad": "read only when the experiment is registered, and must be true",
        "keep_aspect_ratio": "read only when the experiment is registered, and must be true",
    },
    "vision.configs.retinanet.Parser": {
        "num_channels": "neither the task nor the parser reads it",
        "aug_policy": _NEVER_READ,
    },
    "vision.configs.retinanet.DetectionGenerator": {
        "decode_boxes": "build_retinanet does not pass it (nor does qat's factory)",
    },
    "vision.configs.semantic_segmentation.DataConfig": {
        "aug_policy": _NEVER_READ,
        "decoder": "the task always uses the same decoder",
    },
    "vision.configs.semantic_segmentation.SegmentationHead": {
        "decoder_min_level": "build_segmentation_model does not pass it",
        "decoder_max_level": "build_segmentation_model does not pass it",
    },
    "vision.configs.video_classification.DataConfig": {
        "name": "no task or parser reads params.name",
        "split": _NEVER_READ,
        "variant_name": _NEVER_READ,
        "compressed_input": _NEVER_READ,
        "data_format": _NEVER_READ,
        "num_examples": "read only when the experiment is registered, to count steps",
    },
    "vision.configs.backbones.VisionTransformer": {
        "hidden_size": _SET_BY_MODEL_NAME,
        "patch_size": _SET_BY_MODEL_NAME,
    },
    "vision.configs.backbones.Transformer": {
        "mlp_dim": _SET_BY_MODEL_NAME,
        "num_heads": _SET_BY_MODEL_NAME,
        "num_layers": _SET_BY_MODEL_NAME,
    },
}


def unused_reason(cls: type, field: str) -> str:
    """Returns why a field of a Model Garden config class has no effect, or "" if it has one.

    The field may be inherited.
    """
    for base in cls.__mro__:
        path = f"{base.__module__}.{base.__qualname__}".removeprefix("official.")
        if field in UNUSED_FIELDS.get(path, {}):
            return UNUSED_FIELDS[path][field]
    return ""
