"""Configs of the networks for images, sentences and ratings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbit_runner.config.errors import Problem, not_allowed, not_set, not_supported, wrong_type
from orbit_runner.config.schema.base import Config, config_class, field
from orbit_runner.models.catalog import (
    APPLICATIONS,
    CIFAR_LAYERS,
    IMAGENET,
    SIZES,
    VIT_NAMES,
    Pixels,
    patch_problem,
)


@config_class
class ImageModelConfig(Config):
    """An image network, selected by name."""

    name: str = field("", help="name of the model; `runner list` shows all")
    num_classes: int | None = field(
        None, ge=1, le=2**20, help="number of classes; by default that of the dataset"
    )
    input_size: list[int] | None = field(
        None,
        ge=1,
        le=16384,
        help="height, width and channels to convert images to; by default those of the dataset",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields an invalid input size, or one that the network does not accept."""
        if self.input_size is None:
            return
        if len(self.input_size) != 3:
            message = f"got {list(self.input_size)}, expected height, width and channels"
            yield wrong_type("input_size", message)
        elif problem := self.size_problem(self.input_size):
            yield not_supported("input_size", problem)

    def size_problem(self, shape: Sequence[int]) -> str:
        """Returns why the network does not accept images of a size, or "" if it does.

        `shape` is height, width and channels.
        """
        return ""

    def pixels(self) -> Pixels | None:
        """Returns how the network expects its pixels; None: normalized as the dataset needs it."""
        return None


def _batch_norm_momentum_field(default: float) -> float:
    return field(
        default, ge=0.0, le=1.0, help="momentum of the moving averages in batch normalization"
    )


def _batch_norm_epsilon_field(default: float) -> float:
    return field(
        default, gt=0.0, help="small constant added to the variance in batch normalization"
    )


def _use_sync_bn_field() -> bool:
    return field(False, help="synchronize batch normalization statistics across replicas")


def _rate_field(default: float, help: str) -> float:
    return field(default, ge=0.0, le=0.99, help=help)


@config_class
class CnnConfig(ImageModelConfig):
    """Two convolutions and a dense layer."""

    filters: list[int] = field(
        (32, 64), ge=1, le=4096, help="number of output channels of each convolution"
    )
    kernel_size: int = field(
        5, ge=1, le=255, help="width and height of the convolution kernels, in pixels"
    )
    dense_units: int = field(1024, ge=1, le=65536, help="number of units in the dense layer")
    dropout_rate: float = _rate_field(0.4, "dropout rate after the dense layer")


@config_class
class MlpConfig(ImageModelConfig):
    """Dense layers."""

    hidden_units: list[int] = field(
        (128, 64), ge=1, le=65536, help="number of units in each hidden layer"
    )
    dropout_rate: float = _rate_field(0.0, "dropout rate after each hidden layer")


@config_class
class ResNetCifarConfig(ImageModelConfig):
    """Residual networks for small images."""

    depth: int = field(
        20, le=2000, help="number of layers with weights: 6n+2 in version 1, 9n+2 in version 2"
    )
    version: int = field(
        1, allowed=(1, 2), help="1: He et al. 2015; 2: pre-activation (He et al. 2016)"
    )
    batch_norm_momentum: float = _batch_norm_momentum_field(0.9)
    batch_norm_epsilon: float = _batch_norm_epsilon_field(1e-5)
    use_sync_bn: bool = _use_sync_bn_field()
    dropout_rate: float = _rate_field(0.0, "dropout rate of the pooled features")

    def problems(self) -> Iterator[Problem]:
        """Yields a depth that the version does not have."""
        yield from super().problems()
        if self.version not in CIFAR_LAYERS:
            return
        step = CIFAR_LAYERS[self.version]
        if self.depth < step + 2 or (self.depth - 2) % step:
            expected = f"expected {step}n+2 in version {self.version}"
            yield not_allowed("depth", f"got {self.depth}, {expected}")


@config_class
class ResNetConfig(ImageModelConfig):
    """Residual networks for images of ImageNet's size."""

    depth: int = field(
        50, allowed=(18, 34, 50, 101, 152, 200), help="number of layers with weights"
    )
    dropout_rate: float = _rate_field(0.0, "dropout rate of the pooled features")
    batch_norm_momentum: float = _batch_norm_momentum_field(0.9)
    batch_norm_epsilon: float = _batch_norm_epsilon_field(1e-5)
    use_sync_bn: bool = _use_sync_bn_field()


@config_class
class ApplicationConfig(ImageModelConfig):
    """Networks of `tf_keras.applications`, with a new classifier."""

    application: str = field(
        "ResNet50",
        allowed=tuple(APPLICATIONS),
        help="name of the network in `tf_keras.applications`",
    )
    weights: str | None = field(
        None,
        allowed=(None, IMAGENET),
        help="imagenet: the published weights, without those of the classifier",
    )
    dropout_rate: float = _rate_field(0.0, "dropout rate of the pooled features")

    def size_problem(self, shape: Sequence[int]) -> str:
        """Returns why the network does not accept images of a size, or "" if it does."""
        smallest = APPLICATIONS[self.application].min_size
        if min(shape[:2]) < smallest:
            return (
                f"got images of {shape[0]} × {shape[1]} pixels, but {self.application} expects at "
                f"least {smallest} × {smallest}"
            )
        if shape[2] == 3:
            return ""
        got = f"got {shape[2]} as the number of channels"
        return f"{got}, expected 3: the network is for color images"

    def pixels(self) -> Pixels:
        """Returns what `preprocess_input` of the application does."""
        return APPLICATIONS[self.application].pixels


@config_class
class VitConfig(ImageModelConfig):
    """Vision Transformers."""

    model_name: str = field(
        "vit-b16", allowed=VIT_NAMES, help="model size, and patch size in pixels"
    )
    pooler: str = field(
        "token",
        allowed=("token", "gap"),
        help="input of the classifier: encoding of the class token, or mean of the patches (gap)",
    )
    dropout_rate: float = _rate_field(
        0.0, "dropout rate of the embedded patches and of the MLP outputs"
    )
    attention_dropout_rate: float = _rate_field(
        0.0, "dropout rate of the attention weights and of the attention outputs"
    )
    init_stochastic_depth_rate: float = _rate_field(
        0.0, "probability of dropping the last block in training; linearly lower for earlier blocks"
    )
    original_init: bool = field(
        True, help="initialize kernels as in Dosovitskiy et al. 2020; false: as in DeiT"
    )

    def size_problem(self, shape: Sequence[int]) -> str:
        """Returns why images do not divide into patches, or "" if they do."""
        return patch_problem(self.model_name, shape)


@config_class
class EfficientNetConfig(ImageModelConfig):
    """EfficientNet."""

    model_id: str = field(
        "b0",
        allowed=tuple(f"b{size}" for size in range(8)),
        help="variant, which determines width and depth: b0 to b7",
    )
    dropout_rate: float = _rate_field(0.2, "dropout rate of the pooled features")
    stochastic_depth_drop_rate: float = _rate_field(
        0.2,
        "upper bound of a block's dropping probability, which grows linearly "
        "from 0 at the first block",
    )
    se_ratio: float = field(
        0.25,
        ge=0.0,
        le=1.0,
        help="squeeze-and-excitation ratio: squeezed channels / input channels; 0: disable it",
    )
    batch_norm_momentum: float = _batch_norm_momentum_field(0.99)
    batch_norm_epsilon: float = _batch_norm_epsilon_field(1e-3)
    use_sync_bn: bool = _use_sync_bn_field()


# The elementwise activations of Keras.
ACTIVATIONS = ("elu", "exponential", "gelu", "hard_sigmoid", "leaky_relu", "linear", "mish", "relu",
               "relu6", "selu", "sigmoid", "softplus", "softsign", "swish", "tanh")  # fmt: skip


def _optional_rate_field(help: str) -> float | None:
    return field(None, ge=0.0, le=0.99, help=help)


@config_class
class TextModelConfig(Config):
    """A text network, selected by name."""

    name: str = field("", help="name of the model; `runner list` shows all")
    label_smoothing: float = field(
        0.1,
        ge=0.0,
        le=0.99,
        help="fraction of each target's probability that is spread over all other tokens",
    )


@config_class
class StackConfig(Config):
    """The layers of an encoder or a decoder. None means the value of the preset."""

    num_layers: int | None = field(
        None, ge=1, le=1000, help="number of layers; null: that of the preset"
    )
    num_attention_heads: int | None = field(
        None, ge=1, le=1024, help="number of attention heads; null: that of the preset"
    )
    intermediate_size: int | None = field(
        None,
        ge=1,
        le=2**18,
        help="inner width of the feed-forward layers; null: that of the preset",
    )
    activation: str = field(
        "relu", allowed=ACTIVATIONS, help="activation function inside the feed-forward layers"
    )
    dropout_rate: float | None = _optional_rate_field(
        "dropout rate after attention and feed-forward layers; null: dropout_rate of the model"
    )
    attention_dropout_rate: float = field(
        0.1, ge=0.0, le=0.99, help="dropout rate of the attention weights"
    )
    intermediate_dropout: float = field(
        0.1, ge=0.0, le=0.99, help="dropout rate inside the feed-forward layers"
    )
    use_bias: bool = field(False, help="use biases in attention")
    norm_first: bool = field(
        True,
        help="normalize the input of each layer; false: the sum of its input and "
        "output, as in the paper",
    )
    norm_epsilon: float = field(
        1e-6, gt=0.0, help="small constant added to the variance in layer normalization"
    )


@config_class
class TransformerConfig(TextModelConfig):
    """The Transformer of Vaswani et al. 2017. None means the value of the preset."""

    preset: str = field("base", allowed=tuple(SIZES), help="named preset of sizes and dropout rate")
    encoder: StackConfig = field(factory=StackConfig, help="settings of the encoder")
    decoder: StackConfig = field(factory=StackConfig, help="settings of the decoder")
    embedding_width: int | None = field(
        None,
        ge=2,
        le=65536,
        help="width of the embeddings and of all layers; null: that of the preset",
    )
    dropout_rate: float | None = _optional_rate_field(
        "dropout rate of the embeddings, and default of encoder and decoder; null: the preset's"
    )
    padded_decode: bool = field(
        False, help="decode with static shapes, as TPUs require; needs decode_max_length"
    )
    decode_max_length: int | None = field(
        None,
        ge=1,
        le=2**16,
        help="maximum number of tokens of a translation; null: length of the source "
        "plus extra_decode_length",
    )
    extra_decode_length: int = field(
        50,
        ge=0,
        le=2**16,
        help="number of tokens a translation may exceed its source by, if "
        "decode_max_length is null",
    )
    beam_size: int = field(
        4, ge=1, le=1000, help="beam width: number of candidate translations; 1: greedy search"
    )
    alpha: float = field(
        0.6,
        ge=0.0,
        help="strength of length normalization in beam search (Wu et al. 2016, equation 14)",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields sizes that do not fit together."""
        size = SIZES[self.preset]
        width = self.embedding_width or size.embedding_width
        if width % 2:
            message = f"got {width}, expected an even number, for sines and cosines"
            yield Problem("embedding_width", message, code="not-divisible")
        for section in ("encoder", "decoder"):
            heads = getattr(self, section).num_attention_heads or size.num_attention_heads
            if width % heads:
                message = f"got {heads}, expected a divisor of the width, {width}"
                yield Problem(f"{section}.num_attention_heads", message, code="not-divisible")
        if self.padded_decode and self.decode_max_length is None:
            yield not_set("decode_max_length", "is not set, but padded_decode requires it")


@config_class
class NeuMFConfig(Config):
    """GMF and MLP; with the fields of Model Garden's NCF flags."""

    name: str = field("", help="name of the model; `runner list` shows all")
    mf_dim: int = field(8, ge=1, le=65536, help="width of the GMF embeddings")
    layers: list[int] = field(
        (64, 32, 16, 8),
        ge=1,
        le=65536,
        help="widths of the MLP's input (user and item embeddings concatenated) and of its layers",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields widths that two embeddings cannot have."""
        if not self.layers or self.layers[0] % 2:
            got = list(self.layers)
            message = f"got {got}, expected an even number first, for two equal embeddings"
            yield Problem("layers", message, code="not-divisible")
