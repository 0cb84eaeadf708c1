"""Configs of the image networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from orbit_runner.config.schema.base import Config, field
from orbit_runner.models.resnet_depths import nearest_depths, valid_depth
from orbit_runner.models.transformer_sizes import VIT_NAMES, patch_problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageModelConfig(Config):
    """An image network, selected by name."""

    name: str = field("", help="the network: a name that `runner list` shows")
    num_classes: int | None = field(
        None, ge=1, le=2**20, help="number of labels; from the data set where unset"
    )
    input_size: list[int] | None = field(
        None,
        ge=1,
        le=16384,
        help="height, width and channels that images are brought to; their own where unset",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields an invalid input size, or one that the network does not accept."""
        if self.input_size is None:
            return
        if len(self.input_size) != 3:
            yield "input_size", f"got {list(self.input_size)}, expected height, width and channels"
            return
        problem = self.size_problem(self.input_size)
        if problem:
            yield "input_size", problem

    def size_problem(self, shape: Sequence[int]) -> str:
        """Returns why the network does not accept images of a size, or "" if it does.

        `shape` is height, width and channels.
        """
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CnnConfig(ImageModelConfig):
    """Two convolutions and a dense layer."""

    filters: list[int] = field((32, 64), ge=1, le=4096, help="channels of each convolution")
    kernel_size: int = field(5, ge=1, le=255, help="width and height of the kernels, in pixels")
    dense_units: int = field(1024, ge=1, le=65536, help="width of the dense layer")
    dropout_rate: float = field(0.4, ge=0.0, le=0.99, help="share of units left out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MlpConfig(ImageModelConfig):
    """Dense layers."""

    hidden_units: list[int] = field((128, 64), ge=1, le=65536, help="width of each hidden layer")
    dropout_rate: float = field(0.0, ge=0.0, le=0.99, help="share of units left out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResNetCifarConfig(ImageModelConfig):
    """Residual networks for small images."""

    depth: int = field(
        20, le=2000, help="layers with weights: 6n+2 in version 1, 9n+2 in version 2"
    )
    version: int = field(1, allowed=(1, 2), help="1: He et al. 2015; 2: pre-activation, 2016")
    batch_norm_momentum: float = field(0.9, ge=0.0, le=1.0, help="share of the old moving average")
    batch_norm_epsilon: float = field(1e-5, gt=0.0, help="added to the variance")
    use_sync_bn: bool = field(
        False, help="mean and variance over the batches of all replicas, not of each"
    )
    dropout_rate: float = field(0.0, ge=0.0, le=0.99, help="share of the pooled features left out")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields a depth that the version does not have."""
        yield from super().problems()
        if not valid_depth(self.depth, self.version):
            rule = "6n+2" if self.version == 1 else "9n+2"
            near = " and ".join(str(depth) for depth in nearest_depths(self.depth, self.version))
            yield (
                "depth",
                f"got {self.depth}, expected {rule} in version {self.version}\nnearest: {near}",
            )


def _batch_norm_momentum(default: float) -> float:
    return field(default, ge=0.0, le=1.0, help="share of the old moving average")


def _batch_norm_epsilon(default: float) -> float:
    return field(default, gt=0.0, help="added to the variance")


def _use_sync_bn() -> bool:
    return field(False, help="mean and variance over the batches of all replicas, not of each")


def _rate(default: float, help: str) -> float:
    return field(default, ge=0.0, le=0.99, help=help)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResNetConfig(ImageModelConfig):
    """Residual networks for images of ImageNet's size."""

    depth: int = field(50, allowed=(18, 34, 50, 101, 152, 200), help="layers with weights")
    version: float = field(
        1.5,
        allowed=(1.0, 1.5, 2.0),
        help="1: He et al. 2015; 1.5: stride in the 3×3, Model Garden's; 2: pre-activation, 2016",
    )
    zero_init_last_bn: bool = field(
        False, help="each block starts as its shortcut: the scale of its last batch norm is 0"
    )
    dropout_rate: float = _rate(0.0, "share of the pooled features left out")
    batch_norm_momentum: float = _batch_norm_momentum(0.9)
    batch_norm_epsilon: float = _batch_norm_epsilon(1e-5)
    use_sync_bn: bool = _use_sync_bn()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields `zero_init_last_bn` if blocks do not end in a batch normalization."""
        yield from super().problems()
        if self.version == 2.0 and self.zero_init_last_bn:
            yield "zero_init_last_bn", "blocks of version 2 do not end in a batch norm"


@dataclasses.dataclass(frozen=True, kw_only=True)
class VitConfig(ImageModelConfig):
    """Vision Transformers."""

    model_name: str = field("vit-b16", allowed=VIT_NAMES, help="size, and width of the patches")
    pooler: str = field(
        "token", allowed=("token", "gap"), help="what is classified: a token, or the patches' mean"
    )
    dropout_rate: float = _rate(0.0, "share left out of embeddings and of what a perceptron adds")
    attention_dropout_rate: float = _rate(
        0.0, "share left out of attention weights and of what attention adds"
    )
    init_stochastic_depth_rate: float = _rate(
        0.0, "how often the last block adds nothing; those before it less, linearly"
    )
    original_init: bool = field(
        True, help="kernels start as in Dosovitskiy et al. 2020; if not, as in DeiT"
    )

    def size_problem(self, shape: Sequence[int]) -> str:
        """Returns why images do not divide into patches, or "" if they do."""
        return patch_problem(self.model_name, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EfficientNetConfig(ImageModelConfig):
    """EfficientNet."""

    model_id: str = field(
        "b0", allowed=tuple(f"b{size}" for size in range(8)), help="width and depth: b0 to b7"
    )
    dropout_rate: float = _rate(0.2, "share of the pooled features left out")
    stochastic_depth_drop_rate: float = _rate(
        0.2, "how often a block past the last would add nothing; others less, linearly"
    )
    se_ratio: float = field(
        0.25, ge=0.0, le=1.0, help="width of squeeze and excitation; 0 for none"
    )
    batch_norm_momentum: float = _batch_norm_momentum(0.99)
    batch_norm_epsilon: float = _batch_norm_epsilon(1e-3)
    use_sync_bn: bool = _use_sync_bn()
