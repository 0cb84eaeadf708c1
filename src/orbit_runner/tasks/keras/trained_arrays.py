"""What a run found out about its arrays. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.indexed import indexed_arrays
from orbit_runner.errors import DataError, SettingError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.keras.config import SECTIONS, TABLE, KerasConfig
from orbit_runner.tasks.keras.keras_names import split_item
from orbit_runner.tasks.keras.sources import (
    Specs,
    labels_of_source,
    section_source,
    specs_of,
)
from orbit_runner.tasks.keras.stream import StreamSource
from orbit_runner.tasks.keras.table_source import ClassNames, W, Y, class_names

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
        labels: The labels of all sections.
        classes: The names of the classes of labels that are texts, by the path of their array.
        size: The number of training examples, if it had to be counted.
    """

    specs: Specs
    labels: Labels
    classes: ClassNames = dataclasses.field(default_factory=dict)
    size: int | None = None

    def check(self, specs: Specs, section: str) -> None:
        """Raises `SettingError` if the arrays of a section do not fit those of the run."""
        for path in sorted({*specs, *self.specs} - {W}):
            if specs.get(path) != self.specs.get(path):
                raise SettingError(
                    f"task.{section}.source",
                    f"got {path} {_format_spec(specs.get(path))}, but the run was trained on "
                    f"{_format_spec(self.specs.get(path))}\n"
                    "use arrays like those of the training, or another --model_dir",
                )


def labels_of(arrays: Sequence[np.ndarray], ignored: object = None) -> Labels:
    """Returns the description of the labels of all sections, whose shape and type are equal.

    `ignored` is a class number that counts as no label; None for none.
    """
    first = arrays[0]
    if ignored is not None:
        arrays = [array[array != ignored] for array in arrays]
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
        labels = content["labels"] | {"shape": tuple(content["labels"]["shape"])}
        classes = {path: tuple(names) for path, names in content.get("classes", {}).items()}
        return TrainedArrays(specs, Labels(**labels), classes, content.get("size"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise assets.damaged(ARRAYS_FILE, repr(error)) from None


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
        return TrainedArrays(specs, Labels(*specs[Y]))
    train = sources[0]
    if train is None:
        raise DataError("is not set", field="source")
    ignored = split_item(config.loss)[1].get("ignore_class")
    classes: ClassNames = class_names(config) if config.kind == TABLE else {}
    if isinstance(train, ImageDataset):
        count = train.known_classes()
        labels = Labels((), "int32", *(() if count is None else (0.0, count - 1.0)))
        names = train.labels
        classes = {Y: tuple(map(str, names))} if names else {}
        return TrainedArrays(specs_of(train, config.input_size), labels, classes)
    if isinstance(train, StreamSource) or indexed_arrays(train):
        labels = Labels(*specs_of(train)[Y])
        size = train.count_examples() if isinstance(train, StreamSource) else None
        return TrainedArrays(specs_of(train), labels, size=size)
    arrays = [labels_of_source(source) for source in sources if source is not None]
    return TrainedArrays(specs_of(train), labels_of(arrays, ignored), classes)


def _format_spec(spec: tuple[tuple[int, ...], str] | None) -> str:
    return "none" if spec is None else f"{spec[1]} {list(spec[0])}"
