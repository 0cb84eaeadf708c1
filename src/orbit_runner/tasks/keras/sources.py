"""Loads the examples of a config section. Uses no TensorFlow, so that they are checked early."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.data import input_paths
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.serialize import plain_value
from orbit_runner.data.arrays import is_text, leaves, read_npz
from orbit_runner.data.dataset import arguments_of, describe_label
from orbit_runner.data.fingerprint import (
    DataFile,
    content_digest,
    describe_files,
)
from orbit_runner.data.images.dataset import ImageDataset, Size
from orbit_runner.data.indexed import (
    describe_examples,
    indexed_arrays,
)
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.keyed_random import GOLDEN, mix
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource, places_of_arrays
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.split import RowSplit, rows_of_fraction
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import DataError, SettingError, first_line
from orbit_runner.registry import ARRAY_SOURCES
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.image_classification.sources import load_source as load_images
from orbit_runner.tasks.image_classification.sources import training_classes
from orbit_runner.tasks.imbalance.classes import Classes, classes_of_labels, training_mixture
from orbit_runner.tasks.keras.config import IMAGES, SECTIONS, TABLE, KerasConfig, KerasDataConfig
from orbit_runner.tasks.keras.passed_objects import ARRAYS as PASSED_ARRAYS
from orbit_runner.tasks.keras.passed_objects import bound_function
from orbit_runner.tasks.keras.stream import StreamSource, is_tf_dataset
from orbit_runner.tasks.keras.table_source import (
    class_names,
    input_columns,
    table_query,
    table_source,
)
from orbit_runner.tasks.keras.user_arrays import W, X, Y, arrays_of, named_below
from orbit_runner.tasks.keras_items import is_item, leaves_of, split_item
from orbit_runner.tasks.tabular.data_config import names_of
from orbit_runner.utils.metrics import summarize_array

# The names of classes, by the path of the labels.
ClassNames: TypeAlias = Mapping[str, tuple[str, ...]]
Specs: TypeAlias = Mapping[str, tuple[tuple[int, ...], str]]
Examples: TypeAlias = "ArraySource | ImageDataset | StreamSource"
_KEY = np.uint64(0x6A09E667F3BCC908)
ARRAYS_FILE = "arrays.json"  # An asset of the run.


def section_source(
    config: KerasConfig, section: str, classes: ClassNames | None = None
) -> Examples | None:
    """Returns the examples of a section, `train_data` or `validation_data`; None if it has none.

    Of arrays and tables, `x` is an array or arrays by name, `y` the labels, and `w` the weights of
    the examples, if they have any. `classes` are the names of the classes of the labels of tables;
    by default those of the training data. Raises `DataError` if the data cannot be used.
    """
    data = config.section(section)
    if data is None:
        return None
    if data.kind == TABLE:
        return table_source(config, section, classes)
    if data.kind == IMAGES:
        return load_images(data, config.input_size, None, config.row_split)
    source = load_source(data)
    split = config.row_split
    if split is None:
        return source
    if isinstance(source, StreamSource):
        raise DataError(
            f"{source.name}: a tf.data dataset cannot be split\nname other data in validation_data",
            field="function",
            code="bad-data",
        )
    return _select_part(source, split, data.part)


def load_source(data: KerasDataConfig) -> ArraySource | StreamSource:
    """Returns the arrays that a section names. They are loaded once per process."""
    if data.mixture:
        return _join_sources(tuple(load_source(section) for section in data.sources))
    load = ARRAY_SOURCES.get(data.source).load()
    arguments = json.dumps(plain_value(data.arguments), sort_keys=True)
    source: ArraySource | StreamSource = load(**arguments_of(load, data, arguments=arguments))
    return source


def source_files(config: KerasConfig, section: str) -> list[DataFile]:
    """Returns descriptions of the files of a section, or of its arrays."""
    data = config.section(section)
    if data is None:
        return []
    if data.kind == TABLE:
        return table_query(config).data_files(section)
    if data.kind == IMAGES:
        return load_images(data, config.input_size, None, config.row_split).data_files()
    return [row for part in data.sources for row in _array_files(part)]


def _array_files(data: KerasDataConfig) -> list[DataFile]:
    paths = input_paths(data)
    if paths:
        return describe_files(paths, content_digest)
    if data.digest and data.digest not in PASSED_ARRAYS:
        return []
    source = load_source(data)
    return describe_examples(source) if isinstance(source, ArraySource) else source.describe()


@cache_source(maxsize=4)
def _join_sources(sources: tuple[ArraySource | StreamSource, ...]) -> ArraySource:
    arrays = [source for source in sources if isinstance(source, ArraySource)]
    if len(arrays) < len(sources):
        raise DataError(
            "a tf.data dataset cannot be part of a mixture", field="mixture", code="bad-data"
        )
    return arrays[0].join(arrays)


def example_classes(source: Examples) -> Classes:
    """Returns the class of each example. Raises `DataError` if they are not classes."""
    if isinstance(source, ImageDataset):
        return training_classes(source)
    if isinstance(source, StreamSource) or indexed_arrays(source):
        raise DataError(
            f"{source.name}: the labels are in the items, so classes cannot be counted before "
            "training; return arrays, or set class_weights to a weight for each class",
            field="source",
            code="not-supported",
        )
    labels = source.arrays[Y]
    if isinstance(labels, Mapping):
        raise DataError(
            f"an example has several labels, {', '.join(labels)}, so it has no single class\n"
            "give y as one array, or weights w of the examples",
            code="not-supported",
        )
    return classes_of_labels(labels, source.labels)


def labels_by_name(source: Examples | None) -> Mapping[str, Any]:
    """Returns the labels of all examples, by "" if there is one array; none if they are unknown."""
    if isinstance(source, ImageDataset):
        # To read all records takes too long.
        return {"": source.class_numbers()} if source.has_labels else {}
    if not isinstance(source, ArraySource) or indexed_arrays(source) or Y not in source.arrays:
        return {}
    labels = source.arrays[Y]
    return labels if isinstance(labels, Mapping) else {"": labels}


def label_of(source: ArraySource, row: int) -> dict[str, object]:
    """Returns the labels of an example that are a number or a text, by `label` or `label.NAME`.

    A class that has a name also has `class`.
    """
    labels = source.arrays[Y]
    if not isinstance(labels, Mapping):
        return describe_label(labels[row], names=source.labels)
    parts = [describe_label(array[row], f"label.{name}") for name, array in labels.items()]
    return {name: value for part in parts for name, value in part.items()}


def example_mixture(
    data: KerasDataConfig,
    source: Examples,
    excluded: np.ndarray = NO_EXAMPLES,
) -> Mixture | None:
    """Returns the mixture that the examples of a section are drawn from, if there is one."""
    origins = None if isinstance(source, StreamSource) else source.origins
    return training_mixture(data, origins, lambda: example_classes(source), excluded)


def mismatch_problems(train: Specs, validation: Specs) -> Iterator[Problem]:
    """Yields (field, message) if the arrays of validation differ in shape or type."""
    for got, expected in spec_differences(validation, train):
        message = f"got {got}, expected {expected} as in train_data"
        yield Problem("validation_data.source", message, code="data-mismatch")


def spec_differences(specs: Specs, expected: Specs) -> Iterator[tuple[str, str]]:
    """Yields inputs and labels of other shape or type than is expected, and what is expected."""
    for path in sorted({*specs, *expected}):
        got, wanted = specs.get(path), expected.get(path)
        if path.partition(".")[0] != W and got != wanted:
            yield f"{path} {_format_spec(got)}", _format_spec(wanted)


def specs_of(source: Examples, size: Size = None) -> Specs:
    """Returns the shape of an example and the type of each array, by dotted path.

    `size` is the height, width and channels that images are resized to, or None.
    """
    if isinstance(source, StreamSource):
        return source.specs
    if isinstance(source, ImageDataset):
        return {X: (source.spec(size)[0], "float32"), Y: ((), "int32")}
    return {
        path: (tuple(array.shape[1:]), "string" if is_text(array) else array.dtype.name)
        for path, array in leaves(source.arrays)
    }


@cache_source(maxsize=4)
def _select_part(source: ArraySource, split: RowSplit, part: str) -> ArraySource:
    """Returns the examples of a part, which depend only on their index and the split."""
    first = mix(np.array([split.seed], np.uint64)) + _KEY
    mixed = mix((np.arange(source.size, dtype=np.uint64) + first) * np.uint64(GOLDEN))
    places = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    return source.select(rows_of_fraction(places, dict(split.fractions), part))


def batch_size_of(source: ArraySource | StreamSource) -> int:
    """Returns the number of examples in a batch of what a program passed; 0 if it has none."""
    if isinstance(source, StreamSource):
        return source.batch_size
    return next((array.values.reader.batch_size for array in indexed_arrays(source)), 0)


@cache_source(maxsize=4)
def call_function(function: str, arguments: str) -> ArraySource | StreamSource:
    """Returns what a function returns. `arguments` are its keyword arguments as JSON."""
    if "tensorflow" not in sys.modules:  # The function may import it.
        prepare_environment(RuntimeConfig())
    importlib.invalidate_caches()
    try:
        make = bound_function(function, json.loads(arguments), "function", "arguments")
        returned = make()
    except SettingError as error:
        raise DataError(error.reason, field=error.path, code=error.code) from error
    except OSError as error:
        reason = f"{function}: {type(error).__name__}: {first_line(error)}"
        raise DataError(reason, field="function", code="bad-data") from error
    return (
        StreamSource(function, make) if is_tf_dataset(returned) else arrays_of(returned, function)
    )


@cache_source(maxsize=4)
def read_files(input_path: tuple[str, ...]) -> ArraySource:
    """Returns the arrays in `.npz` files, one after the other."""
    parts = [read_npz(Path(path)) for path in input_path]
    if any(part.keys() != parts[0].keys() for part in parts):
        keys = "; ".join(", ".join(sorted(part)) for part in parts)
        raise DataError(
            f"the files have different arrays: {keys}", field="input_path", code="bad-data"
        )
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    try:
        source = arrays_of(named_below(arrays, (Y,)), ", ".join(input_path))
        counts = [len(next(iter(part.values()))) for part in parts]
        named = places_of_arrays("FILE", [*zip(input_path, counts, strict=True)])
        return dataclasses.replace(source, places=named)
    except DataError as error:
        raise DataError(str(error), field="input_path", code=error.code) from error


def _format_spec(spec: tuple[tuple[int, ...], str] | None) -> str:
    return "none" if spec is None else f"{spec[1]} {list(spec[0])}"


def find_passed_arrays(digest: str) -> ArraySource | StreamSource:
    """Returns the data that a Python program passed to `orbit_runner.run`."""
    if digest not in PASSED_ARRAYS:
        raise DataError(
            "the data were passed to orbit_runner.run, and this process does not have them\n"
            "run the Python program again; it resumes the run",
            field="source",
            code="not-repeatable",
        )
    source: ArraySource | StreamSource = PASSED_ARRAYS[digest]
    return source


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
        classes: The names of the classes of images, and of labels of tables that are texts.
        size: The number of training examples, if it had to be counted.
        are_cropped: Whether evaluation crops the center of images before it resizes them.
        columns: The columns of each input of a table, by its path.
    """

    specs: Specs
    labels: Labels | Mapping[str, Labels]
    classes: ClassNames = dataclasses.field(default_factory=dict)
    size: int | None = None
    are_cropped: bool = False
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

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
    values = np.concatenate([array.ravel() for array in arrays]) if counted else np.empty(0)
    low, high, *_ = summarize_array(values)
    return Labels(tuple(first.shape[1:]), first.dtype.name, low, high)


def trained_arrays(config: KerasConfig, assets: Assets) -> TrainedArrays:
    """Returns what a run found out about its arrays; of a new run, finds it out.

    Raises `DataError` if the arrays cannot be read.
    """
    content = assets.get_json(ARRAYS_FILE, lambda: dataclasses.asdict(_describe(config)))
    try:
        specs = {path: (tuple(shape), dtype) for path, (shape, dtype) in content["specs"].items()}
        is_single = Y in specs
        listed = {"": content["labels"]} if is_single else content["labels"]
        labels = {
            name: Labels(**{**part, "shape": tuple(part["shape"])}) for name, part in listed.items()
        }
        classes = {path: tuple(names) for path, names in content["classes"].items()}
        known = labels[""] if is_single else labels
        columns = {path: tuple(names) for path, names in content["columns"].items()}
        return TrainedArrays(
            specs, known, classes, content["size"], content["are_cropped"], columns
        )
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
        known: Specs = {
            path: (tuple(spec["shape"]), spec["dtype"]) for path, spec in data.features.items()
        }
        return TrainedArrays(known, _labels_of_specs(known))
    train = sources[0]
    if train is None:
        raise DataError("is not set", field="source", code="not-set")
    if isinstance(train, ImageDataset):
        count = train.known_classes()
        labels = Labels((), "int32", *(() if count is None else (0.0, count - 1.0)))
        classes = {Y: tuple(map(str, train.labels))} if train.labels else {}
        are_cropped = config.input_size is not None and not train.is_in_memory
        specs = specs_of(train, config.input_size)
        return TrainedArrays(specs, labels, classes, are_cropped=are_cropped)
    if isinstance(train, StreamSource) or indexed_arrays(train):
        size = train.count_examples() if isinstance(train, StreamSource) else None
        return TrainedArrays(specs_of(train), _labels_of_specs(specs_of(train)), size=size)
    specs = specs_of(train)
    names: ClassNames = {}
    columns = {}
    if config.kind == TABLE:
        names = class_names(config)
        columns = {path: names_of(listed) for path, listed in input_columns(config).items()}
    read = [s for s in sources if isinstance(s, ArraySource) and not indexed_arrays(s)]
    arrays = [source.arrays[Y] for source in read]
    ignored = _ignored_classes(config.loss)
    # Other sections with other arrays are an error when they are read.
    alike = [labels for labels in arrays if isinstance(labels, Mapping) == (Y not in specs)]
    described: Labels | dict[str, Labels] = (
        labels_of(alike, ignored)
        if Y in specs
        else {
            name: labels_of([part[name] for part in alike if name in part], ignored)
            for name in alike[0]
        }
    )
    return TrainedArrays(specs, described, names, columns=columns)


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


def _ignored_classes(loss: object) -> list[int]:
    """Returns the class numbers that the losses of a config ignore."""
    configs = [split_item(item)[1] or {} for _, item in leaves_of(loss, "loss") if is_item(item)]
    return [config["ignore_class"] for config in configs if config.get("ignore_class") is not None]
