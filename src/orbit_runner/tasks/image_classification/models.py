"""Configs of the networks for images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from orbit_runner.config.base import Config, setting
from orbit_runner.modeling.resnet_depths import nearest_depths, valid_depth


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageModelConfig(Config):
    """A network for images, by name."""

    name: str = setting("", help="the network: a name that `runner list` shows")
    num_classes: int | None = setting(
        None, minimum=1, help="number of labels; from the data set where unset"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CnnConfig(ImageModelConfig):
    """Two convolutions and a dense layer."""

    filters: list[int] = setting((32, 64), minimum=1, help="channels of each convolution")
    kernel_size: int = setting(5, minimum=1, help="width and height of the kernels, in pixels")
    dense_units: int = setting(1024, minimum=1, help="width of the dense layer")
    dropout_rate: float = setting(0.4, minimum=0.0, maximum=0.99, help="share of units left out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MlpConfig(ImageModelConfig):
    """Dense layers."""

    hidden_units: list[int] = setting((128, 64), minimum=1, help="width of each hidden layer")
    dropout_rate: float = setting(0.0, minimum=0.0, maximum=0.99, help="share of units left out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResNetCifarConfig(ImageModelConfig):
    """Residual networks for small images."""

    depth: int = setting(20, help="layers with weights: 6n+2 in version 1, 9n+2 in version 2")
    version: int = setting(1, allowed=(1, 2), help="1: He et al. 2015; 2: pre-activation, 2016")
    batch_norm_momentum: float = setting(
        0.9, minimum=0.0, maximum=1.0, help="share of the old moving average"
    )
    batch_norm_epsilon: float = setting(1e-5, above=0.0, help="added to the variance")
    use_sync_bn: bool = setting(
        False, help="mean and variance over the batches of all replicas, not of each"
    )
    dropout_rate: float = setting(
        0.0, minimum=0.0, maximum=0.99, help="share of the pooled features left out"
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields a depth that the version does not have."""
        if not valid_depth(self.depth, self.version):
            rule = "6n+2" if self.version == 1 else "9n+2"
            near = " and ".join(str(depth) for depth in nearest_depths(self.depth, self.version))
            yield (
                "depth",
                f"got {self.depth}, expected {rule} in version {self.version}\nnearest: {near}",
            )
