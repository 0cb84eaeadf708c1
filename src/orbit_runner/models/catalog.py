"""The sizes of networks, and the image networks with published weights. No TensorFlow.

tf_keras knows the addresses and digests of its own weights. EfficientNetB0 to B7 are missing:
without `weights="imagenet"`, tf_keras builds another network, and its normalization layer does not
restore its statistics from checkpoints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from orbit_runner.data.images import NATURAL_MEAN, NATURAL_STD

# The value of `task.model.weights` that stands for published weights.
IMAGENET = "imagenet"
# The layer of a network that published weights are loaded into.
BACKBONE = "backbone"


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

# The number of layers that one more block in each of the three stages of a residual network for
# small images adds, by version: two per basic block (He et al. 2015, section 4.2), three per
# bottleneck (He et al. 2016, appendix).
CIFAR_LAYERS = {1: 6, 2: 9}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerSize:
    """The hyperparameters of one size."""

    embedding_width: int  # Also the width of the layers.
    num_layers: int  # Of the encoder, and of the decoder.
    num_attention_heads: int
    intermediate_size: int  # Inner width of the feed-forward layers.
    dropout_rate: float = 0.1  # After embeddings, attention and feed-forward layers.


# Vaswani et al. 2017, table 3. `tiny` is for tests.
SIZES: Mapping[str, TransformerSize] = MappingProxyType(
    {
        "tiny": TransformerSize(
            embedding_width=32, num_layers=6, num_attention_heads=4, intermediate_size=256
        ),
        "base": TransformerSize(
            embedding_width=512, num_layers=6, num_attention_heads=8, intermediate_size=2048
        ),
        "big": TransformerSize(
            embedding_width=1024, num_layers=6, num_attention_heads=16, intermediate_size=4096
        ),
    }
)

# Model Garden's names; its `VIT_SPECS` contains the widths and depths.
VIT_NAMES = ("vit-ti16", "vit-s16", "vit-b16", "vit-b32", "vit-l16", "vit-l32")


def patch_size(model_name: str) -> int:
    """Returns the width and height of the patches, in pixels."""
    return int(model_name[-2:])


def patch_problem(model_name: str, shape: Sequence[int]) -> str:
    """Returns an error message if the image size is not valid, otherwise an empty string."""
    size = patch_size(model_name)
    if all(length >= size and length % size == 0 for length in shape[:2]):
        return ""
    return (
        f"got images of {shape[0]} × {shape[1]} pixels, expected multiples of {size}, the patch "
        f"size of {model_name}"
    )
