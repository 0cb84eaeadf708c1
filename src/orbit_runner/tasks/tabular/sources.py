"""Loads the tables of a config. Does not import TensorFlow, so that they can be checked early."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from orbit_runner.data.fingerprint import (
    DataFile,
    content_digest,
    describe_arrays,
    describe_files,
)
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.build import CellError
from orbit_runner.data.tables.cache import read_table
from orbit_runner.data.tables.columns import (
    CATEGORY,
    DATE,
    INTEGER,
    KEY,
    NUMBER,
    TEXT,
    TablePart,
    TableSource,
)
from orbit_runner.data.tables.dataset import TableDataset, TableUse
from orbit_runner.data.tables.hashing import value_bits
from orbit_runner.data.tables.split import part_of_table
from orbit_runner.errors import DataError, nearest_name_hint
from orbit_runner.tasks.imbalance.classes import Classes, classes_of_column, training_mixture
from orbit_runner.tasks.tabular.config import CLASSIFICATION, REGRESSION, TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig


def load_datasets(config: TabularConfig, section: str) -> list[TableDataset]:
    """Returns the dataset of each source of a section, which is opened once per process."""
    use = TableUse(
        kinds=tuple((name, kind) for _, name, kind in named_columns(config, section)),
        has_features=bool(config.features.names),
        is_split=config.split is not None,
    )
    sources = getattr(config, section).sources
    return [data.format.of_section(data, data.options, use) for data in sources]


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
    for name in config.features.date:
        yield "features.date", name, DATE
    for index, text in enumerate(config.features.text):
        yield f"features.text[{index}].column", text.column, TEXT
    if config.split is not None and not getattr(config, section).traits.is_generated:
        if config.split.column:
            yield "split.column", config.split.column, CATEGORY
        for name in config.split.hash_of:
            yield "split.hash_of", name, KEY


def feature_kinds(config: TabularConfig) -> dict[str, str]:
    """Returns the kind of each feature by name: numbers, dates, categories, texts.

    Without lists in the config, they are the columns that nothing else uses, in the order of the
    training table, with the kinds that its dataset infers.
    """
    numeric, categorical = config.features.numeric, config.features.categorical
    dates = config.features.date
    if not config.features.names:
        kinds = load_datasets(config, "train_data")[0].kinds
        used = {name for _, name, _ in named_columns(config, "train_data")}
        used |= {*config.features.exclude}
        numeric = [n for n, kind in kinds.items() if kind == NUMBER and n not in used]
        categorical = [n for n, kind in kinds.items() if kind == CATEGORY and n not in used]
        dates = [n for n, kind in kinds.items() if kind == DATE and n not in used]
    texts = [text.column for text in config.features.text]
    pairs = ((numeric, NUMBER), (categorical, CATEGORY), (dates, DATE), (texts, TEXT))
    return {name: kind for names, kind in pairs for name in names}


def load_part(config: TabularConfig, section: str) -> TablePart:
    """Returns the rows of a section. The table is read once per process.

    Raises `DataError` if the table is missing or damaged, a value does not fit its column, or a
    source of a mixture lacks a column.
    """
    data = getattr(config, section)
    split = None if config.split is None else config.split.row_split([*feature_kinds(config)])
    parts = tuple(
        part_of_table(
            source, None if source_config.traits.is_generated else split, source_config.part
        )
        for source_config, source in zip(data.sources, load_sources(config, section), strict=True)
    )
    return join_parts(parts) if data.mixture else parts[0]


@cache_source(maxsize=4)
def join_parts(parts: tuple[TablePart, ...]) -> TablePart:
    """Returns the rows of several tables, one after the other."""
    return parts[0].join(parts)


def load_sources(config: TabularConfig, section: str) -> list[TableSource]:
    """Returns each source of a section, with the columns that are used."""
    kinds = {name: kind for _, name, kind in reversed([*named_columns(config, section)])}
    # A column that is a feature keeps the kind of the feature if it also decides on the part.
    kinds |= feature_kinds(config)
    datasets = load_datasets(config, section)
    if not config.features.names:
        integers = datasets[0].integers & feature_kinds(config).keys()
        kinds |= {name: INTEGER for name in integers if kinds[name] == NUMBER}
    # The split compares and hashes texts, also those of columns that are numbers for the model.
    deciding = {
        name: kind
        for path, name, kind in named_columns(config, section)
        if path.startswith("split") and kinds[name] != kind
    }
    for number, dataset in enumerate(datasets):
        missing = next((name for name in kinds if name not in dataset.kinds), "")
        if number and missing in datasets[0].kinds:
            raise DataError(
                f"{_name_of(dataset)}: has no column {missing!r}"
                f"{nearest_name_hint(missing, dataset.kinds)}, which {_name_of(datasets[0])} of "
                "mixture[0] has",
                field=f"mixture[{number}]",
                code="unknown-column",
            )
    try:
        return [
            load_columns(dataset, tuple(kinds.items()), tuple(deciding.items()))
            for dataset in datasets
        ]
    except CellError as error:
        raise _explain_cell(config, section, error) from None


def _explain_cell(config: TabularConfig, section: str, error: CellError) -> CellError:
    """Returns the error of a cell with the settings that solve it."""
    named = {name: path for path, name, _ in reversed([*named_columns(config, section)])}
    path = named.get(error.column, "features")
    message, _, more = str(error).partition("\n")
    lines = [message]
    if error.text:
        lines.append("if it is a missing value, list it in missing_values of both sections")
    if path.startswith("targets"):
        lines.append("if its values are classes, set type: classification")
    elif path.startswith("features"):
        lines.append("to use its texts as categories, list the column in features.categorical")
    lines += [more] * bool(more)
    setting = path if path.startswith(("targets", "weight_column")) else "features"
    return CellError("\n".join(lines), error.column, error.text, setting, code=error.code)


def _name_of(dataset: TableDataset) -> str:
    return str(dataset.files[0]) if dataset.files else dataset.name


@cache_source(maxsize=8)
def load_columns(
    dataset: TableDataset,
    kinds: tuple[tuple[str, str], ...],
    deciding: tuple[tuple[str, str], ...] = (),
) -> TableSource:
    """Returns the columns of a table, each with its kind. They are read once per process.

    `deciding` are the columns that the split reads as another kind.
    """
    table = read_table(dataset, dict(kinds))
    if not deciding:
        return table
    return dataclasses.replace(table, deciding=read_table(dataset, dict(deciding)).columns)


def source_files(config: TabularConfig, section: str) -> list[DataFile]:
    """Returns descriptions of the files of a section, or of its columns if there are none."""
    datasets = load_datasets(config, section)
    files = describe_files([path for dataset in datasets for path in dataset.files], content_digest)
    if all(dataset.files for dataset in datasets) or getattr(config, section).traits.is_generated:
        return files
    for dataset, source in zip(datasets, load_sources(config, section), strict=True):
        if not dataset.files:
            files += describe_columns(source)
    return files


def describe_columns(source: TableSource) -> list[DataFile]:
    """Returns descriptions of the columns of a table that has no files."""
    return describe_arrays({name: value_bits(column) for name, column in source.columns.items()})


def target_classes(config: TabularConfig) -> Classes:
    """Returns the class of each training row, of the only classification target.

    Raises `DataError` if there is none, or there are several.
    """
    names = [target.column for target in config.targets if target.type == CLASSIFICATION]
    if len(names) != 1:
        raise DataError(
            f"got {len(names)} classification targets, expected one, whose classes have weights",
            code="not-supported",
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
