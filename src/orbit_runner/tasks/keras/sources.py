"""Loads the examples of a config section. Uses no TensorFlow, so that they are checked early."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.data import input_paths
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.serialize import plain_value
from orbit_runner.data.arrays import read_npz
from orbit_runner.data.dataset import arguments_of
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.order.keyed_random import GOLDEN, mix
from orbit_runner.data.source import places_of_arrays
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.split import RowSplit, rows_of_fraction
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import DataError, SettingError, first_line
from orbit_runner.registry import ARRAY_SOURCES
from orbit_runner.tasks.assets import Assets, other_data_error, with_tuples
from orbit_runner.tasks.image_classification.sources import load_source as load_images
from orbit_runner.tasks.keras.config import IMAGES, SECTIONS, TABLE, KerasConfig, KerasDataConfig
from orbit_runner.tasks.keras.examples import (
    ArrayExamples,
    ClassNames,
    Examples,
    ImageExamples,
    Labels,
    Specs,
    W,
    Y,
)
from orbit_runner.tasks.keras.passed_objects import ARRAYS as PASSED_ARRAYS
from orbit_runner.tasks.keras.passed_objects import bound_function
from orbit_runner.tasks.keras.stream import StreamSource, is_tf_dataset
from orbit_runner.tasks.keras.table_source import (
    class_names,
    input_columns,
    table_query,
    table_source,
)
from orbit_runner.tasks.keras.user_arrays import arrays_of, named_below
from orbit_runner.tasks.keras_items import is_item, leaves_of, split_item
from orbit_runner.tasks.tabular.data_config import names_of

_KEY = np.uint64(0x6A09E667F3BCC908)
ARRAYS_FILE = "arrays.json"  # An asset of the run.


def section_source(
    config: KerasConfig, section: str, classes: ClassNames | None = None
) -> Examples | None:
    """Returns the examples of a section, `train_data` or `validation_data`; None if it has none.

    `classes` are the names of the classes of the labels of tables;
    by default those of the training data. Raises `DataError` if the data cannot be used.
    """
    data = config.section(section)
    if data is None:
        return None
    if data.kind == TABLE:
        return table_source(config, section, classes)
    if data.kind == IMAGES:
        images = load_images(data, config.input_size, None, config.row_split)
        return ImageExamples(images, config.input_size)
    source = load_source(data)
    split = config.row_split
    if split is None:
        return source
    if source.stored is None:
        raise DataError(
            f"{source.name}: a tf.data dataset cannot be split\nname other data in validation_data",
            field="function",
            code="bad-data",
        )
    return _select_part(source, split, data.part)


def load_source(data: KerasDataConfig) -> Any:
    """Returns the arrays or the dataset that a section names, loaded once per process."""
    if data.mixture:
        return _join_sources(tuple(load_source(section) for section in data.sources))
    load = ARRAY_SOURCES.get(data.source).load()
    arguments = json.dumps(plain_value(data.arguments), sort_keys=True)
    return load(**arguments_of(load, data, arguments=arguments))


def source_files(config: KerasConfig, section: str) -> list[DataFile]:
    """Returns descriptions of the files of a section, or of its arrays."""
    data = config.section(section)
    if data is None:
        return []
    if data.kind == TABLE:
        return table_query(config).data_files(section)
    if data.kind == IMAGES:
        return load_images(data, config.input_size, None, config.row_split).data_files()
    return [
        row
        for part in data.sources
        for row in (
            describe_files(input_paths(part), content_digest)
            if input_paths(part)
            else load_source(part).data_files()
        )
    ]


@cache_source(maxsize=4)
def _join_sources(sources: tuple[Any, ...]) -> ArrayExamples:
    if any(source.stored is None for source in sources):
        raise DataError(
            "a tf.data dataset cannot be part of a mixture", field="mixture", code="bad-data"
        )
    joined: ArrayExamples = sources[0].join(sources)
    return joined


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


@cache_source(maxsize=4)
def _select_part(source: ArrayExamples, split: RowSplit, part: str) -> ArrayExamples:
    """Returns the examples of a part, which depend only on their index and the split."""
    first = mix(np.array([split.seed], np.uint64)) + _KEY
    mixed = mix((np.arange(source.size, dtype=np.uint64) + first) * np.uint64(GOLDEN))
    places = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    return source.select(rows_of_fraction(places, dict(split.fractions), part))


@cache_source(maxsize=4)
def call_function(function: str, arguments: str) -> Examples:
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
def read_files(input_path: tuple[str, ...]) -> ArrayExamples:
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


def find_passed_arrays(digest: str) -> Examples:
    """Returns the data that a Python program passed to `orbit_runner.run`."""
    if digest not in PASSED_ARRAYS:
        raise DataError(
            "the data were passed to orbit_runner.run, and this process does not have them\n"
            "run the Python program again; it resumes the run",
            field="source",
            code="not-repeatable",
        )
    source: Examples = PASSED_ARRAYS[digest]
    return source


@dataclasses.dataclass(frozen=True)
class TrainedArrays:
    """The arrays that a model is trained on.

    Attributes:
        specs: The shape of an example and the type of each array, by dotted path.
        labels: The labels of all sections by name; "" if an example has a single one.
        classes: The names of the classes of images, and of labels of tables that are texts.
        size: The number of training examples, if it had to be counted.
        are_cropped: Whether evaluation crops the center of images before it resizes them.
        columns: The columns of each input of a table, by its path.
    """

    specs: Specs
    labels: Mapping[str, Labels]
    classes: ClassNames = dataclasses.field(default_factory=dict)
    size: int | None = None
    are_cropped: bool = False
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def check(self, specs: Specs, section: str) -> None:
        """Raises `SettingError` if the arrays of a section do not fit those of the run."""
        for got, expected in spec_differences(specs, self.specs):
            raise other_data_error(section, got, expected)


def trained_arrays(config: KerasConfig, assets: Assets) -> TrainedArrays:
    """Returns what a run found out about its arrays; of a new run, finds it out.

    Raises `DataError` if the arrays cannot be read.
    """
    return assets.get_json(
        ARRAYS_FILE, lambda: dataclasses.asdict(_describe(config)), _decode_arrays
    )


def _decode_arrays(content: Any) -> TrainedArrays:
    values = with_tuples(content)
    labels = {name: Labels(**part) for name, part in values["labels"].items()}
    return TrainedArrays(**values | {"labels": labels})


def _describe(config: KerasConfig) -> TrainedArrays:
    sources = [section_source(config, section) for section in SECTIONS]
    train = sources[0]
    if train is None:
        raise DataError("is not set", field="source", code="not-set")
    sections = [source for source in sources if source is not None]
    is_table = config.kind == TABLE
    columns = input_columns(config) if is_table else {}
    return TrainedArrays(
        specs=train.specs,
        labels=train.describe_labels(sections, _ignored_classes(config.loss)),
        classes=class_names(config) if is_table else {**train.class_names},
        size=train.count_examples(),
        are_cropped=train.are_cropped,
        columns={path: names_of(columns_of_path) for path, columns_of_path in columns.items()},
    )


def _ignored_classes(loss: object) -> list[int]:
    """Returns the class numbers that the losses of a config ignore."""
    configs = [split_item(item)[1] or {} for _, item in leaves_of(loss, "loss") if is_item(item)]
    return [config["ignore_class"] for config in configs if config.get("ignore_class") is not None]
