"""Overrides that make large experiments small enough for a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

_TINY_IMAGES = {"task.model.input_size": [32, 32, 3], "task.model.num_classes": 10}
_TINY_SENTENCES = {
    "task.model.preset": "tiny",
    "task.model.encoder.num_layers": 1,
    "task.model.decoder.num_layers": 1,
    "task.model.extra_decode_length": 4,
    "task.vocab_size": 500,
}

SMALLER: dict[str, dict[str, object]] = {
    "efficientnet_imagenet": _TINY_IMAGES,
    "resnet50_imagenet": _TINY_IMAGES | {"task.model.depth": 18},
    "resnet_cifar_v2": {"task.model.depth": 11},
    "transformer_multi30k": _TINY_SENTENCES,
    "transformer_wmt_ende": _TINY_SENTENCES,
    "vit_base_imagenet": _TINY_IMAGES | {"task.model.model_name": "vit-ti16"},
}


def overrides(name: str) -> tuple[str, ...]:
    """Returns `path=value` for each setting of an experiment that a test changes."""
    return tuple(f"{path}={value}" for path, value in SMALLER.get(name, {}).items())


# One of each task, and of each kind of network.
SAMPLE = ("digits", "ncf_movielens", "resnet_cifar", "transformer_multi30k", "vit_base_imagenet")


def sampled(names: Sequence[str]) -> list[Any]:
    """Marks the experiments that only `make soak SUITE=experiments` runs.

    Args:
        names: Names of experiments.
    """
    return [n if n in SAMPLE else pytest.param(n, marks=pytest.mark.wide) for n in names]
