"""A small network, and images for it."""

from __future__ import annotations

import numpy as np
import tf_keras

from orbit_runner.models.resnet_cifar import resnet_cifar


def small_resnet(depth: int, version: int, size: int) -> tf_keras.Model:
    options = {"mean": [120.0], "std": [60.0], "num_classes": 10}
    return resnet_cifar(input_shape=(size, size, 3), depth=depth, version=version, **options)


def random_pixels(size: int, count: int = 4) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, size, size, 3), "uint8")
