"""What a run found out about its arrays. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.indexed import indexed_arrays
from orbit_runner.errors import DataError, SettingError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.keras.config import SECTIONS, TABLE, KerasConfig
from orbit_runner.tasks.keras.sources import (
    Specs,
    labels_of_source,
    section_source,
    spec_differences,
    specs_of,
)
from orbit_runner.tasks.keras.stream import StreamSource
from orbit_runner.tasks.keras.table_source import ClassNames, Y, class_names
from orbit_runner.tasks.keras_items import is_item, leaves_of, split_item

ARRAYS_FILE = "arrays.json"  # An asset of the run.


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels of a dataset.

    Attributes:
        shape: The shape of one label; () for a number.
        dtype: The name of their type.
        low: The smallest label; None if unknown.
        high: The largest label; None if unknown.
    """

    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None

    @property
    def are_integers(self) -> bool:
        """Whether the labels are integers, such as class numbers."""
        return np.dtype(self.dtype).kind in "iub"

    def __str__(self) -> str:
        text = f"{self.dtype} {['batch', *self.shape]}".replace("'", "")
        return text if self.low is None else f"{text} from {self.low:g} to {self.high:g}"


@dataclasses.dataclass(frozen=True)
class TrainedArrays:
    """The arrays that a model is trained on.

    Attributes:
        specs: The shape of an example and the type of each array, by dotted path.
        labels: The labels of all sections; by name, if an example has several.
        classes: The names of the classes of labels that are texts, by the path of their array.
        size: The number of training examples, if it had to be counted.
    """

    specs: Specs
    labels: Labels | Mapping[str, Labels]
    classes: ClassNames = dataclasses.field(default_factory=dict)
    size: int | None = None

    def check(self, specs: Specs, section: str) -> None:
        """Raises `SettingError` if the arrays of a section do not fit those of the run."""
        for got, expected in spec_differences(specs, self.specs):
            raise SettingError(
                f"task.{section}.source",
                f"got {got}, but the run was trained on {expected}\n"
                "use arrays like those of the training, or another --model_dir",
                code="data-mismatch",
            )


def labels_of(arrays: Sequence[np.ndarray], ignored: Sequence[int] = ()) -> Labels:
    """Returns the description of the labels of all sections, whose shape and type are equal.

    `ignored` are class numbers that count as no label.
    """
    first = arrays[0]
    if ignored:
        arrays = [array[~np.isin(array, ignored)] for array in arrays]
    counted = first.dtype.kind in "iuf" and all(array.size for array in arrays)
    return Labels(
        tuple(first.shape[1:]),
        first.dtype.name,
        min(float(array.min()) for array in arrays) if counted else None,
        max(float(array.max()) for array in arrays) if counted else None,
    )


def trained_arrays(config: KerasConfig, assets: Assets) -> TrainedArrays:
    """Returns what a run found out about its arrays; of a new run, finds it out.

    Raises `DataError` if the arrays cannot be read.
    """
    content = assets.get_json(ARRAYS_FILE, lambda: dataclasses.asdict(_describe(config)))
    try:
        specs = {path: (tuple(shape), dtype) for path, (shape, dtype) in content["specs"].items()}
        labels: Any = content["labels"]
        labels = (
            _read_labels(labels)
            if Y in specs
            else {name: _read_labels(part) for name, part in labels.items()}
        )
        classes = {path: tuple(names) for path, names in content["classes"].items()}
        return TrainedArrays(specs, labels, classes, content["size"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise assets.damaged(ARRAYS_FILE, error) from None


def _describe(config: KerasConfig) -> TrainedArrays:
    data = config.train_data
    try:
        sources = [section_source(config, section) for section in SECTIONS]
    except DataError:
        # Another process had the arrays, and recorded their shapes.
        if not data.features:
            raise
        specs = {
            path: (tuple(spec["shape"]), spec["dtype"]) for path, spec in data.features.items()
        }
        return TrainedArrays(specs, _labels_of_specs(specs))
    train = sources[0]
    if train is None:
        raise DataError("is not set", field="source", code="not-set")
    if isinstance(train, ImageDataset):
        count = train.known_classes()
        labels = Labels((), "int32", *(() if count is None else (0.0, count - 1.0)))
        classes = {Y: tuple(map(str, train.labels))} if train.labels else {}
        return TrainedArrays(specs_of(train, config.input_size), labels, classes)
    if isinstance(train, StreamSource) or indexed_arrays(train):
        size = train.count_examples() if isinstance(train, StreamSource) else None
        read = specs_of(train)
        return TrainedArrays(read, _labels_of_specs(read), size=size)
    names: ClassNames = class_names(config) if config.kind == TABLE else {}
    arrays = [labels_of_source(source) for source in sources if source is not None]
    ignored = _ignored_classes(config.loss)
    # Other sections with other arrays are an error when they are read.
    are_named = isinstance(arrays[0], Mapping)
    alike = [array for array in arrays if isinstance(array, Mapping) == are_named]
    if not are_named:
        labels = labels_of(alike, ignored)
        return TrainedArrays(specs_of(train), labels, names)
    described = {
        name: labels_of([part[name] for part in alike if name in part], ignored)
        for name in arrays[0]
    }
    return TrainedArrays(specs_of(train), described, names)


def _labels_of_specs(specs: Specs) -> Labels | dict[str, Labels]:
    """Returns the labels of examples whose values are not known before they are read."""
    if Y in specs:
        return Labels(*specs[Y])
    start = f"{Y}."
    return {
        path.removeprefix(start): Labels(*spec)
        for path, spec in specs.items()
        if path.startswith(start)
    }


def _read_labels(values: Mapping[str, Any]) -> Labels:
    return Labels(**{**values, "shape": tuple(values["shape"])})


def _ignored_classes(loss: object) -> list[int]:
    """Returns the class numbers that the losses of a config ignore."""
    configs = [split_item(item)[1] or {} for _, item in leaves_of(loss, "loss") if is_item(item)]
    return [config["ignore_class"] for config in configs if config.get("ignore_class") is not None]
