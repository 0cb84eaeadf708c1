"""The image networks with published weights, and the pixels that they expect. No TensorFlow.

tf_keras knows the addresses and digests of its own weights. EfficientNetB0 to B7 are missing:
without `weights="imagenet"`, tf_keras builds another network, and its normalization layer does not
restore its statistics from checkpoints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from orbit_runner.data.images.statistics import NATURAL_MEAN, NATURAL_STD

# The value of `task.model.weights` that stands for published weights.
IMAGENET = "imagenet"
# The layer of a network that weights files of Keras are loaded into.
BACKBONE = "backbone"
KERAS_SUFFIXES = (".h5", ".hdf5", ".keras")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pixels:
    """What a network expects of RGB pixels of 0 to 255."""

    mean: tuple[float, ...] | None = None  # subtracted, of each channel or of all
    std: tuple[float, ...] | None = None  # divided by, likewise
    is_bgr: bool = False  # whether the order of the channels is reversed, after that


@dataclasses.dataclass(frozen=True)
class Application:
    """A network of `tf_keras.applications`."""

    pixels: Pixels  # what `preprocess_input` of its module returns
    min_size: int  # of height and width


MODEL_GARDEN_PIXELS = Pixels(mean=NATURAL_MEAN, std=NATURAL_STD)
_RESNET_50 = "https://storage.googleapis.com/cloud-tpu-checkpoints/vision-2.0/resnet50_imagenet"
# Model Garden's networks of version 1.5, by depth: the index and the data of a checkpoint. Configs
# of its detectors begin with it, such as `official/vision/configs/retinanet.py`.
RESNETS = {
    50: (f"{_RESNET_50}/ckpt-28080.index", f"{_RESNET_50}/ckpt-28080.data-00000-of-00001"),
}

# The modes of `tf_keras.applications.imagenet_utils.preprocess_input`, and none.
_CAFFE = Pixels(mean=(123.68, 116.779, 103.939), is_bgr=True)
_TORCH = Pixels(mean=NATURAL_MEAN, std=NATURAL_STD)
_TF = Pixels(mean=(127.5,), std=(127.5,))
_RAW = Pixels()


def _family(pixels: Pixels, name: str, sizes: str, min_size: int = 32) -> dict[str, Application]:
    """Returns the applications of one module; `sizes` replace the `{}` of the name."""
    return {name.format(size): Application(pixels, min_size) for size in sizes.split()}


APPLICATIONS: Mapping[str, Application] = {
    **_family(_RAW, "ConvNeXt{}", "Base Large Small Tiny XLarge"),
    **_family(_TORCH, "DenseNet{}", "121 169 201"),
    **_family(_RAW, "EfficientNetV2{}", "B0 B1 B2 B3 L M S"),
    **_family(_TF, "Inception{}", "ResNetV2 V3", min_size=75),
    **_family(_TF, "{}", "MobileNet MobileNetV2"),
    **_family(_RAW, "MobileNetV3{}", "Large Small"),
    **_family(_TF, "NASNet{}", "Large Mobile"),
    **_family(_RAW, "RegNetX{}", "002 004 006 008 016 032 040 064 080 120 160 320"),
    **_family(_RAW, "RegNetY{}", "002 004 006 008 016 032 040 064 080 120 160 320"),
    **_family(_CAFFE, "ResNet{}", "50 101 152"),
    **_family(_RAW, "ResNetRS{}", "50 101 152 200 270 350 420"),
    **_family(_TF, "ResNet{}V2", "50 101 152"),
    **_family(_CAFFE, "VGG{}", "16 19"),
    **_family(_TF, "{}", "Xception", min_size=71),
}
