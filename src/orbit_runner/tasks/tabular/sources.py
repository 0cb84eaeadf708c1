"""Loads the tables of a config. Does not import TensorFlow, so that they can be checked early."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.fingerprint import (
    DataFile,
    content_digest,
    describe_arrays,
    describe_files,
)
from orbit_runner.data.join_sources import join_tables
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.bad_rows import exclude_bad_rows
from orbit_runner.data.tables.build import CellError
from orbit_runner.data.tables.cache import read_table
from orbit_runner.data.tables.columns import CATEGORY, INTEGER, KEY, NUMBER, TEXT, TableSource
from orbit_runner.data.tables.hashing import hash_rows, value_bits
from orbit_runner.data.tables.reader import TableOptions, TableReader
from orbit_runner.data.tables.split import positions, rows_of_fraction, rows_with_value
from orbit_runner.data.tables.summary import TablePart
from orbit_runner.errors import DataError, nearest_name_hint
from orbit_runner.registry import TABLE_SOURCES
from orbit_runner.tasks.imbalance.classes import Classes, classes_of_column, training_mixture
from orbit_runner.tasks.tabular.config import CLASSIFICATION, REGRESSION, TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig

SYNTHETIC = "synthetic"
_MAX_SETTING = 200
# The joined tables of mixtures.
_JOINED_TABLES: dict[tuple[Any, ...], TablePart] = {}
_MAX_JOINED_TABLES = 4


def load_reader(config: TabularConfig, section: str) -> TableReader:
    """Returns the reader of a section's table, that of the first source of a mixture."""
    return load_readers(config, section)[0]


def load_readers(config: TabularConfig, section: str) -> list[TableReader]:
    """Returns the reader of each source of a section, which is opened once per process."""
    return [_reader(config, data) for data in getattr(config, section).sources]


def _reader(config: TabularConfig, data: TableDataConfig) -> TableReader:
    if data.source == SYNTHETIC:
        return _load_synthetic(config, data)
    if data.source == "tfds":
        options = TableOptions(
            tfds_name=data.tfds_name,
            tfds_splits=_tfds_splits(config, data),
            missing_values=data.missing_texts,
        )
        return _open(data.source, data.tfds_data_dir, input_paths(data), options)
    options = TableOptions(
        delimiter=data.delimiter,
        column_names=tuple(data.column_names),
        missing_values=data.missing_texts,
        function=data.function,
        files=data.class_files,
        max_bad_records=data.max_bad_records,
    )
    return _open(data.source, data.data_dir, input_paths(data), options)


def _tfds_splits(config: TabularConfig, data: TableDataConfig) -> tuple[str, ...]:
    """Returns the split that a section reads, or several: it reads the first that exists."""
    if data.tfds_split:
        return (data.tfds_split,)
    # With `task.split`, both sections read parts of the same rows.
    return ("train",) if data.is_training or config.split else ("validation", "test")


@cache_source(maxsize=8)
def _open(
    source: str, data_dir: str, input_path: tuple[str, ...], options: TableOptions
) -> TableReader:
    return TABLE_SOURCES.get(source).load()(
        data_dir=data_dir, input_path=input_path, options=options
    )


def _load_synthetic(config: TabularConfig, data: TableDataConfig) -> TableReader:
    return _synthesize(
        json.dumps(
            {
                "num_examples": data.synthetic.num_examples,
                "kind": data.synthetic.kind,
                "seed": data.seed or 0,
                "part": "train" if data.is_training else "validation",
                "numeric": config.features.numeric,
                "categorical": config.features.categorical,
                "text": [text.column for text in config.features.text],
                "targets": {target.column: kind_of(target.type) for target in config.targets},
                "weight": config.weight_column,
            }
        )
    )


@cache_source(maxsize=8)
def _synthesize(settings: str) -> TableReader:
    return TABLE_SOURCES.get(SYNTHETIC).load()(**json.loads(settings))


def kind_of(target_type: str) -> str:
    """Returns the kind of column of a target."""
    return NUMBER if target_type == REGRESSION else CATEGORY


def named_columns(config: TabularConfig, section: str) -> Iterator[tuple[str, str, str]]:
    """Yields the setting, the name and the kind of each column that a config names."""
    for index, target in enumerate(config.targets):
        yield f"targets[{index}].column", target.column, kind_of(target.type)
    if config.weight_column:
        yield "weight_column", config.weight_column, NUMBER
    for name in config.features.numeric:
        yield "features.numeric", name, NUMBER
    for name in config.features.categorical:
        yield "features.categorical", name, CATEGORY
    for index, text in enumerate(config.features.text):
        yield f"features.text[{index}].column", text.column, TEXT
    if config.split is not None and getattr(config, section).source != SYNTHETIC:
        if config.split.column:
            yield "split.column", config.split.column, CATEGORY
        for name in config.split.hash_of:
            yield "split.hash_of", name, KEY


def feature_kinds(config: TabularConfig) -> dict[str, str]:
    """Returns the kind of each feature by name: numbers, categories, texts, as in the config.

    Without lists in the config, they are the columns that nothing else uses, in the order of the
    training table, with the kinds that its reader infers.
    """
    numeric, categorical = config.features.numeric, config.features.categorical
    if not config.features.names:
        kinds = load_reader(config, "train_data").kinds
        used = {name for _, name, _ in named_columns(config, "train_data")}
        used |= {*config.features.exclude}
        numeric = [n for n, kind in kinds.items() if kind == NUMBER and n not in used]
        categorical = [n for n, kind in kinds.items() if kind == CATEGORY and n not in used]
    texts = [text.column for text in config.features.text]
    pairs = ((numeric, NUMBER), (categorical, CATEGORY), (texts, TEXT))
    return {name: kind for names, kind in pairs for name in names}


def load_part(config: TabularConfig, section: str) -> TablePart:
    """Returns the rows of a section. The table is read once per process.

    Raises `DataError` if the table is missing or damaged, a value does not fit its column, or a
    source of a mixture lacks a column.
    """
    data = getattr(config, section)
    sources = load_sources(config, section)
    if not data.mixture:
        return _rows_of(config, data, sources[0])
    key = tuple(sources), data.part, repr(config.split), tuple(feature_kinds(config))
    if key not in _JOINED_TABLES:
        while len(_JOINED_TABLES) >= _MAX_JOINED_TABLES:
            del _JOINED_TABLES[next(iter(_JOINED_TABLES))]
        parts = zip(data.sources, sources, strict=True)
        _JOINED_TABLES[key] = join_tables([_rows_of(config, one, source) for one, source in parts])
    return _JOINED_TABLES[key]


def _rows_of(config: TabularConfig, data: TableDataConfig, source: TableSource) -> TablePart:
    split = config.split
    if split is None or data.source == SYNTHETIC:
        return TablePart(source, exclude_bad_rows(source))
    if split.column:
        rows = rows_with_value(source.columns[split.column], data.part)
        return TablePart(source, exclude_bad_rows(source, rows))
    hash_columns = split.hash_of or tuple(feature_kinds(config))
    places = _positions(source, tuple(hash_columns), split.seed)
    rows = rows_of_fraction(places, split.fractions or {}, data.part)
    return TablePart(source, exclude_bad_rows(source, rows))


def load_sources(config: TabularConfig, section: str) -> list[TableSource]:
    """Returns each source of a section, with the columns that are used."""
    kinds = {name: kind for _, name, kind in reversed([*named_columns(config, section)])}
    # A column that is a feature keeps the kind of the feature if it also decides on the part.
    kinds |= feature_kinds(config)
    readers = load_readers(config, section)
    if not config.features.names:
        integers = readers[0].integers & feature_kinds(config).keys()
        kinds |= {name: INTEGER for name in integers if kinds[name] == NUMBER}
    # A text is read as a category, and kept once, however many rows have it.
    kinds = {name: CATEGORY if kind == TEXT else kind for name, kind in kinds.items()}
    for number, reader in enumerate(readers):
        missing = next((name for name in kinds if name not in reader.kinds), "")
        if number and missing in readers[0].kinds:
            raise DataError(
                f"{_reader_name(reader)}: has no column {missing!r}"
                f"{nearest_name_hint(missing, reader.kinds)}, which {_reader_name(readers[0])} of "
                "mixture[0] has",
                field=f"mixture[{number}]",
            )
    try:
        return [_load(reader, tuple(kinds.items())) for reader in readers]
    except CellError as error:
        raise _explain_cell(config, section, error) from None


def _explain_cell(config: TabularConfig, section: str, error: CellError) -> CellError:
    """Returns the error of a cell with the settings that solve it."""
    named = {name: path for path, name, _ in reversed([*named_columns(config, section)])}
    path = named.get(error.column, "features")
    message, _, more = str(error).partition("\n")
    lines = [message]
    if error.text:
        lines.append(missing_values_advice(getattr(config, section), [error.text]))
    if path.startswith("targets"):
        lines.append("if its values are classes, set type: classification")
    elif path.startswith("features"):
        lines.append(category_advice(config, error.column))
    lines += [more] * bool(more)
    setting = path if path.startswith(("targets", "weight_column")) else "features"
    return CellError("\n".join(lines), error.column, error.text, setting)


def missing_values_advice(data: TableDataConfig, texts: Sequence[str]) -> str:
    """Returns the setting that makes texts missing values."""
    quoted = json.dumps([*data.missing_texts, *texts], ensure_ascii=False)
    return f"if it is a missing value, set missing_values: {quoted} in both sections"


def category_advice(config: TabularConfig, column: str) -> str:
    """Returns the setting that makes a column a category, and keeps the other features."""
    kinds = feature_kinds(config) | {column: CATEGORY}
    return f"to use its texts as categories, set {_features_setting(config, kinds)}"


def number_advice(config: TabularConfig, column: str) -> str:
    """Returns the setting that makes a column one of numbers, and keeps the other features."""
    kinds = feature_kinds(config) | {column: NUMBER}
    return f"to use its numbers, set {_features_setting(config, kinds)}"


def _features_setting(config: TabularConfig, kinds: Mapping[str, str]) -> str:
    """Returns the features as a setting, or the name of its lists if there are many columns."""
    lists = {
        "numeric": [name for name, kind in kinds.items() if kind == NUMBER],
        "categorical": [name for name, kind in kinds.items() if kind == CATEGORY],
    }
    texts = {name: json.dumps(names, ensure_ascii=False) for name, names in lists.items() if names}
    if config.features.text:
        texts["text"] = "[…]"
    setting = f"features: {{{', '.join(f'{name}: {text}' for name, text in texts.items())}}}"
    if len(setting) <= _MAX_SETTING:
        return setting
    return "features.numeric and features.categorical, which then list all features"


def _reader_name(reader: TableReader) -> str:
    return str(reader.files[0]) if reader.files else reader.name


@cache_source(maxsize=8)
def _load(reader: TableReader, kinds: tuple[tuple[str, str], ...]) -> TableSource:
    return read_table(reader, dict(kinds))


@cache_source(maxsize=2)
def _positions(source: TableSource, hash_columns: tuple[str, ...], seed: int) -> np.ndarray:
    return positions(hash_rows(source.columns[name] for name in hash_columns), seed)


def source_files(config: TabularConfig, section: str) -> list[DataFile]:
    """Returns descriptions of the files of a section, or of its columns if there are none."""
    readers = load_readers(config, section)
    found = describe_files([path for one in readers for path in one.files], content_digest)
    if all(reader.files for reader in readers) or getattr(config, section).source == SYNTHETIC:
        return found
    for reader, source in zip(readers, load_sources(config, section), strict=True):
        if not reader.files:
            found += describe_arrays({n: value_bits(one) for n, one in source.columns.items()})
    return found


def target_classes(config: TabularConfig) -> Classes:
    """Returns the class of each training row, of the only classification target.

    Raises `DataError` if there is none, or there are several.
    """
    names = [target.column for target in config.targets if target.type == CLASSIFICATION]
    if len(names) != 1:
        raise DataError(
            f"got {len(names)} classification targets, expected one, whose classes have weights"
        )
    return classes_of_column(load_part(config, "train_data").column(names[0]))


def table_mixture(
    config: TabularConfig, data: TableDataConfig, excluded: np.ndarray = NO_EXAMPLES
) -> Mixture | None:
    """Returns the mixture that a section's rows are drawn from; None if all are equally likely."""
    if not data.is_training or not (data.mixture or data.class_sampling):
        return None
    part = load_part(config, "train_data")
    return training_mixture(data, part.origins, lambda: target_classes(config), excluded)
