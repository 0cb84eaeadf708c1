"""The data set that a section of the config names; numpy only, so that it is checked early."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from orbit_runner.config.data import DataConfig, input_paths
from orbit_runner.data.source import ArraySource
from orbit_runner.registry import SOURCES

_SYNTHETIC: Mapping[str, Any] = MappingProxyType(
    {
        "image": {"shape": [32, 32, 3], "dtype": "uint8", "low": 0, "high": 256},
        "label": {"shape": [], "dtype": "int32", "low": 0, "high": 10},
    }
)


@functools.lru_cache(maxsize=8)
def _files(name: str, split: str, data_dir: str, paths: tuple[str, ...]) -> ArraySource:
    load = SOURCES.get(name).load()
    return load(split=split, data_dir=data_dir, input_path=paths)


def load_source(config: DataConfig) -> ArraySource:
    """Reads the data set of one section into memory, once a process.

    Args:
        config: The section.

    Returns:
        Arrays `image` [n, height, width, channels] and `label` [n].

    Raises:
        DataError: The set is not there, or is not what it should be.
    """
    split = config.split or ("train" if config.is_training else "test")
    if config.source != "synthetic":
        return _files(config.source, split, config.data_dir, input_paths(config))
    spec = config.synthetic
    return SOURCES.get("synthetic").load()(
        features=spec.features or _SYNTHETIC,
        num_examples=spec.num_examples,
        kind=spec.kind,
        seed=config.seed or 0,
    )
