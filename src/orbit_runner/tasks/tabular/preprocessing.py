"""What is fitted on the training rows: means, deviations, categories and words of columns."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.tables.columns import CATEGORY, NUMBER, Column
from orbit_runner.data.tables.reader import TableReader
from orbit_runner.data.tables.summary import TablePart
from orbit_runner.tasks.tabular.config import REGRESSION, TabularConfig
from orbit_runner.tasks.tabular.sources import feature_kinds, load_part, load_readers
from orbit_runner.tasks.tabular.texts import TextFit, fit_text
from orbit_runner.utils.cache import cache_directory, write_shared_file
from orbit_runner.utils.files import read_json_object

# The file in the run directory.
PREPROCESSING_FILE = "preprocessing.json"
_FORMAT = 1
# A faster fit is not cached.
_CACHED_SECONDS = 0.2


@dataclasses.dataclass(frozen=True)
class NumberFit:
    """A numeric column: mean and standard deviation, and whether training rows lack values."""

    mean: float
    deviation: float
    has_missing: bool = False


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How columns become inputs and targets of the model.

    Attributes:
        numeric: The numeric features by name.
        categorical: The texts of the categorical features by name. The code of a text is its place
            here plus 1, and 0 for other texts. "" is a missing value, if training rows have any.
        classes: The classes of each target of classification.
        scales: Mean and deviation of each target of regression.
        texts: The tokens of the text features by name.
    """

    numeric: Mapping[str, NumberFit]
    categorical: Mapping[str, Sequence[str]]
    classes: Mapping[str, Sequence[str]]
    scales: Mapping[str, NumberFit]
    texts: Mapping[str, TextFit] = dataclasses.field(default_factory=dict)

    def codes(self, column: Column) -> np.ndarray:
        """Returns the codes of a categorical feature, int32 [n]."""
        return _recode(column, self.categorical[column.name], first=1, other=0)

    def class_numbers(self, column: Column) -> np.ndarray:
        """Returns the class of each row, int32 [n], -1 for a class that training does not have."""
        return _recode(column, self.classes[column.name], first=0, other=-1)


def _recode(column: Column, texts: Sequence[str], *, first: int, other: int) -> np.ndarray:
    index = {text: number for number, text in enumerate(texts, first)}
    # The last text is that of missing values, whose code is -1.
    table = [index.get(text, other) for text in (*column.vocabulary, "")]
    return np.array(table, np.int32)[column.values]


def fit(config: TabularConfig) -> Preprocessing:
    """Fits the values on the training rows. Raises `DataError` if they cannot be read."""
    part, kinds = load_part(config, "train_data"), feature_kinds(config)
    regression = {target.column for target in config.targets if target.type == REGRESSION}
    return Preprocessing(
        numeric={n: _fit_number(part.column(n)) for n, kind in kinds.items() if kind == NUMBER},
        categorical={n: _category_texts(part, n) for n, kind in kinds.items() if kind == CATEGORY},
        classes={
            target.column: _category_texts(part, target.column)
            for target in config.targets
            if target.column not in regression
        },
        scales={name: _fit_number(part.column(name)) for name in sorted(regression)},
        texts={one.column: fit_text(one, part.column(one.column)) for one in config.features.text},
    )


def fit_or_load(config: TabularConfig) -> Preprocessing:
    """Returns the result of `fit`, from the cache if it is slow and the files have not changed."""
    entry = _cache_entry(config)
    found = load_preprocessing(entry, config) if entry is not None else None
    if found is None:
        began = time.monotonic()
        found = fit(config)
        if entry is not None and time.monotonic() - began > _CACHED_SECONDS:
            # If the cache cannot be written, the next run only takes longer.
            with contextlib.suppress(OSError):
                write_shared_file(entry, serialize_preprocessing(config, found))
    return found


def _cache_entry(config: TabularConfig) -> Path | None:
    files = [path for path, *_ in _file_status(load_readers(config, "train_data"))]
    if not files:
        return None
    text = json.dumps([files, _settings(config)])
    return cache_directory("tables") / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.fit.json"


def _fit_number(column: Column) -> NumberFit:
    missing = column.is_missing()
    values = column.values[~missing] if missing.any() else column.values
    if not len(values):
        return NumberFit(0.0, 1.0, True)
    mean = float(values.mean(dtype=np.float64))
    deviation = float(values.std(dtype=np.float64))
    # A constant column must stay constant.
    return NumberFit(mean, deviation or 1.0, bool(missing.any()))


def _category_texts(part: TablePart, name: str) -> tuple[str, ...]:
    return tuple(part.column(name).text_counts())


def serialize_preprocessing(config: TabularConfig, fitted: Preprocessing) -> bytes:
    """Returns the content of the file for the run directory."""
    content = {
        "format": _FORMAT,
        "settings": _settings(config),
        "files": _file_status(load_readers(config, "train_data")),
        **dataclasses.asdict(fitted),
    }
    return json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n"


def load_preprocessing(path: Path, config: TabularConfig) -> Preprocessing | None:
    """Returns what an earlier start of the run fitted, or None if it has to be fitted again.

    It is valid for the same columns and parts. The files must be unchanged, or missing: a trained
    model can be used without its data.
    """
    try:
        content = read_json_object(path)
        if content["format"] != _FORMAT or content["settings"] != _settings(config):
            return None
        if not content["files"] or not all(_is_unchanged(*file) for file in content["files"]):
            return None
        return Preprocessing(
            numeric={name: NumberFit(**fit) for name, fit in content["numeric"].items()},
            categorical={name: tuple(texts) for name, texts in content["categorical"].items()},
            classes={name: tuple(texts) for name, texts in content["classes"].items()},
            scales={name: NumberFit(**fit) for name, fit in content["scales"].items()},
            texts={name: _load_text(fit) for name, fit in content.get("texts", {}).items()},
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _load_text(fit: Mapping[str, Any]) -> TextFit:
    return TextFit(fit["max_length"], tuple(fit["words"]), fit["sentencepiece"])


def _settings(config: TabularConfig) -> Any:
    """Returns the settings that the result depends on besides the files, as JSON values."""
    data, features = config.train_data, config.features.as_dict()
    # Files from before these settings existed do not have them.
    for name in ("text", "exclude"):
        if not features[name]:
            del features[name]
    found: dict[str, Any] = {
        "features": features,
        "targets": [target.as_dict() for target in config.targets],
        "split": None if config.split is None else config.split.as_dict(),
        "source": data.source,
        "part": data.part,
        "delimiter": data.delimiter,
        "column_names": list(data.column_names),
        "missing_values": list(data.missing_values),
    }
    if data.files:
        found["files"] = data.class_files
    if data.mixture:
        found["mixture"] = [one.as_dict() for one in data.mixture]
    return json.loads(json.dumps(found))


def _file_status(readers: Sequence[TableReader]) -> list[tuple[str, int, int]]:
    if not all(reader.files for reader in readers):
        return []
    status = [(path.absolute(), path.stat()) for one in readers for path in one.files]
    return [(str(path), one.st_size, one.st_mtime_ns) for path, one in status]


def _is_unchanged(path: str, size: int, mtime_ns: int) -> bool:
    try:
        status = Path(path).stat()
    except OSError:
        return True
    return (status.st_size, status.st_mtime_ns) == (size, mtime_ns)
