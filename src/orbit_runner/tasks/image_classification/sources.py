"""The data set that a section of the config names; numpy only, so that it is checked early."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from orbit_runner.config.data import DataConfig, input_paths
from orbit_runner.data.source import ArraySource, leaves
from orbit_runner.data.tfrecord.source import RecordSource
from orbit_runner.errors import DataError
from orbit_runner.registry import SOURCES

_SYNTHETIC: Mapping[str, Any] = MappingProxyType(
    {
        "image": {"shape": [32, 32, 3], "dtype": "uint8", "low": 0, "high": 256},
        "label": {"shape": [], "dtype": "int32", "low": 0, "high": 10},
    }
)

Source = ArraySource | RecordSource


@functools.lru_cache(maxsize=8)
def _files(name: str, split: str, data_dir: str, paths: tuple[str, ...]) -> Source:
    load = SOURCES.get(name).load()
    return load(split=split, data_dir=data_dir, input_path=paths)


def load_source(config: DataConfig) -> Source:
    """Reads the data set of one section into memory, or finds its records; once a process.

    Args:
        config: The section.

    Returns:
        Arrays `image` [n, height, width, channels] and `label` [n], or records to stream.

    Raises:
        DataError: The set is not there, or is not what it should be.
    """
    if config.source == "tfrecord":
        return _files(config.source, config.split, config.data_dir, input_paths(config))
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


def image_spec(source: Source) -> tuple[tuple[int, ...], str]:
    """Returns the shape, (height, width, channels), and the dtype of the images.

    Args:
        source: The data set.

    Raises:
        DataError: It has none.
    """
    if isinstance(source, RecordSource):
        return source.image_shape, "uint8"
    image: Any = source.arrays.get("image", 0)
    if np.ndim(image) != 4:
        names = ", ".join(path for path, _ in leaves(source.arrays))
        raise DataError(
            f"{source.name}: got arrays {names}, expected `image` [n, height, width, channels]",
            field="source",
        )
    return image.shape[1:], image.dtype.name


def known_classes(source: Source) -> int | None:
    """Returns the number of labels as far as the data set tells, None where only its files know.

    Args:
        source: The data set.
    """
    if isinstance(source, RecordSource):
        return None
    return source.num_classes or int(source.arrays["label"].max()) + 1


def misfits(sources: Mapping[str, Source], num_classes: int | None) -> Iterator[tuple[str, str]]:
    """Yields (field, message) for data sets that do not go with each other or with the network.

    Args:
        sources: The data sets by section, those of training first.
        num_classes: Number of labels that the network is asked to have, if it is.
    """
    for section, source in sources.items():
        classes = known_classes(source) if num_classes else None
        if num_classes and classes and classes > num_classes:
            yield (
                "model.num_classes",
                f"got {num_classes}, expected at least {classes}, the labels of {section}",
            )
            break
    specs = [(section, *image_spec(source)) for section, source in sources.items()]
    for section, shape, dtype in specs[1:]:
        first, *expected = specs[0]
        if [shape, dtype] != expected:
            yield (
                f"{section}.source",
                f"got images {list(shape)} of {dtype}, expected {list(expected[0])} of "
                f"{expected[1]} as in {first}",
            )
