"""The rows of a table as arrays: inputs, labels and weights. Does not import TensorFlow.

The task `tabular` reads the rows; inputs are its features, and outputs its targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from orbit_runner.data.arrays import TextArray
from orbit_runner.data.source import ArraySource
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.build import CellError
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, TablePart, class_numbers
from orbit_runner.data.tables.dataset import TableDataset, TableUse
from orbit_runner.errors import DataError, unknown_name_message
from orbit_runner.tasks.keras.config import SECTIONS, KerasConfig
from orbit_runner.tasks.keras.user_arrays import W, X, Y, named_below
from orbit_runner.tasks.tabular.config import (
    CLASSIFICATION,
    REGRESSION,
    FeaturesConfig,
    TabularConfig,
    TargetConfig,
)
from orbit_runner.tasks.tabular.sources import load_part, named_columns

# The columns of each array, by its path: the name of one, or several of numbers.
_Columns = Mapping[str, "str | tuple[str, ...]"]
_SETTINGS = {"features": "inputs", "targets": "outputs"}


def tabular_config(config: KerasConfig, section: str) -> TabularConfig:
    """Returns the task `tabular` that reads the rows of a section, and how they are split."""
    dataset = _training_dataset(config)
    inputs, outputs = _inputs(config, dataset), _outputs(config)
    lists = [names for names in (*inputs.values(), *outputs.values()) if not isinstance(names, str)]
    numbers = {name for name, kind in dataset.kinds.items() if kind == NUMBER}
    numbers |= {name for names in lists for name in names}
    features = _names(inputs)
    sections: dict[str, Any] = {
        name: data for name in SECTIONS if (data := config.section(name)) is not None
    }
    return TabularConfig(
        features=FeaturesConfig(
            numeric=[name for name in features if name in numbers],
            categorical=[name for name in features if name not in numbers],
        ),
        targets=[
            TargetConfig(column=name, type=REGRESSION if name in numbers else CLASSIFICATION)
            for name in _names(outputs)
        ],
        weight_column=config.weight_column,
        split=config.row_parts,
        **sections,
    )


def setting_of(path: str) -> str:
    """Returns the setting of the task `keras` for one of the task `tabular`."""
    top = path.partition(".")[0].partition("[")[0]
    return _SETTINGS.get(top, path)


def table_source(
    config: KerasConfig, section: str, classes: Mapping[str, Sequence[str]] | None = None
) -> ArraySource:
    """Returns the rows of a section as arrays. The table is read once per process.

    Raises `DataError` if the table is missing or damaged, has no such columns, or has values that
    the model cannot get. For `classes`, see `section_source`.
    """
    table, known = tabular_config(config, section), _training_dataset(config).kinds
    for path, name, _ in named_columns(table, section):
        if name not in known:
            message, code = unknown_name_message("column", name, [*known]), "unknown-column"
            raise CellError(message, name, setting=setting_of(path), code=code)
    try:
        part = load_part(table, section)
    except CellError as error:
        setting, message = setting_of(error.setting), str(error).partition("\n")[0]
        raise CellError(message, error.column, error.text, setting, code=error.code) from error
    names = class_names(config) if classes is None else classes
    return _make_arrays(
        part,
        tuple(_inputs(config, _training_dataset(config)).items()),
        tuple(_outputs(config).items()),
        config.weight_column,
        tuple((path, tuple(texts)) for path, texts in names.items()),
    )


def class_names(config: KerasConfig) -> dict[str, tuple[str, ...]]:
    """Returns the names of the classes in the training rows, by the path of the labels."""
    part = load_part(tabular_config(config, SECTIONS[0]), SECTIONS[0])
    declared = _training_dataset(config).classes
    return {
        path: declared.get(name) or tuple(filter(None, part.column(name).text_counts()))
        for path, name in _outputs(config).items()
        if isinstance(name, str) and part.column(name).kind == CATEGORY
    }


def _training_dataset(config: KerasConfig) -> TableDataset:
    data = config.train_data.sources[0]
    use = TableUse(is_split=config.row_parts is not None)
    return data.format.of_section(data, data.options, use)


def _outputs(config: KerasConfig) -> _Columns:
    return _by_path(Y, config.outputs)


def _inputs(config: KerasConfig, dataset: TableDataset) -> _Columns:
    """Returns the columns of the inputs by the path of their array.

    Without names in the config, a single column is the input, columns of numbers are one array, and
    if there are others, too, each column is an input by its name.
    """
    if isinstance(config.inputs, Mapping):
        return _by_path(X, config.inputs)
    names = [*(config.inputs or ())]
    if not names:
        used = {*_names(_outputs(config)), config.weight_column}
        if config.split is not None:
            used |= {config.split.column, *config.split.hash_of}
        kinds = (NUMBER, CATEGORY, DATE)
        names = [n for n, kind in dataset.kinds.items() if kind in kinds and n not in used]
    if not names:
        raise DataError(
            f"{dataset.name}: no columns are left for inputs", field="columns", code="bad-data"
        )
    if len(names) == 1:
        return {X: names[0]}
    if all(dataset.kinds.get(name) == NUMBER for name in names):
        return {X: tuple(names)}
    return {f"{X}.{name}": name for name in names}


def _by_path(top: str, setting: Any) -> _Columns:
    by_path = {top: setting}
    if isinstance(setting, Mapping):
        by_path = {f"{top}.{name}": names for name, names in setting.items()}
    return {path: n if isinstance(n, str) else tuple(n) for path, n in by_path.items()}


def _names(columns: _Columns) -> list[str]:
    lists = ([names] if isinstance(names, str) else names for names in columns.values())
    return [*dict.fromkeys(name for names in lists for name in names)]


@cache_source(maxsize=4)
def _make_arrays(
    part: TablePart,
    inputs: tuple[tuple[str, str | tuple[str, ...]], ...],
    outputs: tuple[tuple[str, str | tuple[str, ...]], ...],
    weight_column: str,
    classes: tuple[tuple[str, tuple[str, ...]], ...],
) -> ArraySource:
    names = dict(classes)
    arrays = {path: _array(part, columns, "inputs") for path, columns in inputs}
    for path, columns in outputs:
        if path in names:
            arrays[path] = class_numbers(part, str(columns), names[path])
        else:
            arrays[path] = _as_integers(_array(part, columns, "outputs"))
    if weight_column:
        arrays[W] = _array(part, weight_column, "weight_column")
        if (arrays[W] < 0).any():
            raise _cell_error(
                part, weight_column, arrays[W] < 0, "a weight below 0", "weight_column"
            )
    return ArraySource(
        part.name,
        named_below(arrays, (X, Y)),
        files=part.source.files,
        origins=part.origins,
        labels=names.get(Y),
        parts=tuple(part.source.parts),
        rows=part.rows,
        part_kind="FILE",
        unit="row",
        first=1,
    )


def _array(part: TablePart, columns: str | tuple[str, ...], setting: str) -> Any:
    """Returns texts, or numbers: float32 [n], or [n, k] for several columns."""
    if not isinstance(columns, str):
        return np.stack([_array(part, name, setting) for name in columns], axis=1)
    column = part.column(columns)
    missing = column.is_missing()
    if column.kind == CATEGORY:  # The last text is that of missing values.
        codes = np.where(missing, len(column.vocabulary), column.values)
        return TextArray((*column.vocabulary, ""), codes.astype(np.int32))
    if missing.any():
        raise _cell_error(part, columns, missing, f"no value in {missing.sum():,} rows", setting)
    return np.asarray(column.values)


def _as_integers(labels: np.ndarray) -> np.ndarray:
    """Returns one column of whole numbers as int32, and others as they are."""
    is_whole = labels.ndim == 1 and np.array_equal(labels, labels // 1)
    return labels.astype(np.int32) if is_whole and np.abs(labels).max(initial=0) < 2**24 else labels


def _cell_error(
    part: TablePart, column: str, rows: np.ndarray, got: str, setting: str
) -> CellError:
    place = part.row_location(int(rows.argmax()))
    return CellError(f"column {column!r} has {got}\nfirst in {place}", column, setting=setting)
