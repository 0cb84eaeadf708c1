"""Configs of the image networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbit_runner.config.errors import Problem, not_allowed, not_supported, wrong_type
from orbit_runner.config.schema.base import Config, config_class, field
from orbit_runner.models.catalog import (
    APPLICATIONS,
    CIFAR_LAYERS,
    IMAGENET,
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
