"""What is fitted on the training rows: means, deviations, categories and words of columns."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.tables.columns import CATEGORY, DATE, DAY_SECONDS, NUMBER, Column, TablePart
from orbit_runner.data.text.source import PAD, Ragged
from orbit_runner.data.text.tokenizer.words import encode_words, frequent_words
from orbit_runner.errors import RunnerError, format_count
from orbit_runner.tasks.assets import Assets, with_tuples
from orbit_runner.tasks.tabular.config import REGRESSION, TabularConfig, TextColumnConfig
from orbit_runner.tasks.tabular.sources import table_query

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

# The asset of a run.
PREPROCESSING_FILE = "preprocessing.json"


@dataclasses.dataclass(frozen=True)
class TextFit:
    """The vocabulary of a column of texts.

    Attributes:
        max_length: The number of tokens of each text that the model sees.
        words: The words by id, from id 2.
    """

    max_length: int
    words: Sequence[str]

    @property
    def size(self) -> int:
        """The number of token ids. Id 0 is padding."""
        return len(self.words) + 2

    def tokens(self, column: Column) -> np.ndarray:
        """Returns the tokens of each row, int32 [n, max_length], padded with 0."""
        # The last text is that of missing values, whose code is -1.
        rows = encode_words([*column.vocabulary, ""], self.words)
        return _pad_rows(rows, self.max_length)[column.values]

    def decode(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """Returns the texts of rows of tokens, as the model sees them."""
        names = ("", "⁇", *self.words)
        return [" ".join(names[token] for token in row if token) for row in rows]


def fit_text(config: TextColumnConfig, column: Column) -> TextFit:
    """Fits the vocabulary of a column on the training rows."""
    counts = {text: rows for text, rows in column.text_counts().items() if text}
    return TextFit(config.max_length, frequent_words(counts, config.vocab_size))


def _pad_rows(rows: Ragged, width: int) -> np.ndarray:
    """Returns the first tokens of each row, padded with 0: int32 [n, width]."""
    padded = np.full((rows.size, width), PAD, np.int32)
    places = np.arange(len(rows.values)) - np.repeat(rows.offsets[:-1], rows.lengths)
    inside = places < width
    numbers = np.repeat(np.arange(rows.size), rows.lengths)
    padded[numbers[inside], places[inside]] = rows.values[inside]
    return padded


@dataclasses.dataclass(frozen=True)
class NumberFit:
    """A numeric column: mean and standard deviation, and whether training rows lack values."""

    mean: float
    deviation: float
    has_missing: bool = False


@dataclasses.dataclass(frozen=True)
class DateFit(NumberFit):
    """A column of dates, in days since 1970; and whether a training row has a time of the day."""

    has_time: bool = False


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How columns become inputs and the target of the model.

    Attributes:
        numeric: The numeric features by name.
        categorical: The texts of the categorical features by name. The code of a text is its place
            here plus 1, and 0 for other texts. "" is a missing value, if training rows have any.
        target_name: The name of the target.
        classes: The classes; empty if the target is a number.
        scale: Mean and deviation of a target that is a number.
        texts: The tokens of the text features by name.
        dates: The features that are dates by name.
    """

    numeric: Mapping[str, NumberFit]
    categorical: Mapping[str, Sequence[str]]
    target_name: str
    classes: Sequence[str] = ()
    scale: NumberFit | None = None
    texts: Mapping[str, TextFit] = dataclasses.field(default_factory=dict)
    dates: Mapping[str, DateFit] = dataclasses.field(default_factory=dict)

    def codes(self, column: Column) -> np.ndarray:
        """Returns the codes of a categorical feature, int32 [n]."""
        return column.numbers(self.categorical[column.name], first=1, other=0)

    def new_categories(self, part: TablePart) -> list[str]:
        """Returns the texts of categorical features that no training row has, one line each."""
        known = {name: {"", *texts} for name, texts in self.categorical.items()}
        return [
            f"{name} {text!r} in {format_count(rows, 'row')}"
            for name in known
            for text, rows in part.column(name).text_counts().items()
            if text not in known[name]
        ]


def fit(config: TabularConfig) -> Preprocessing:
    """Fits the values on the training rows. Raises `DataError` if they cannot be read."""
    query = table_query(config)
    part = query.part("train_data")
    kinds = query.feature_kinds()
    target = config.target.column
    is_number = config.target.type == REGRESSION
    return Preprocessing(
        numeric={n: _fit_number(part.column(n)) for n, kind in kinds.items() if kind == NUMBER},
        categorical={n: _category_texts(part, n) for n, kind in kinds.items() if kind == CATEGORY},
        target_name=target,
        classes=() if is_number else _category_texts(part, target),
        scale=_fit_number(part.column(target)) if is_number else None,
        texts={
            text.column: fit_text(text, part.column(text.column)) for text in config.features.text
        },
        dates={n: _fit_date(part.column(n)) for n, kind in kinds.items() if kind == DATE},
    )


def _fit_number(column: Column) -> NumberFit:
    missing = column.is_missing()
    values = column.values[~missing] if missing.any() else column.values
    return _fit_values(values, bool(missing.any()))


def _fit_values(values: np.ndarray, has_missing: bool) -> NumberFit:
    if not len(values):
        return NumberFit(0.0, 1.0, True)
    mean = float(values.mean(dtype=np.float64))
    deviation = float(values.std(dtype=np.float64))
    # A constant column must stay constant.
    return NumberFit(mean, deviation or 1.0, has_missing)


def _fit_date(column: Column) -> DateFit:
    missing = column.is_missing()
    seconds = column.values[~missing]
    fit = _fit_values(seconds / DAY_SECONDS, bool(missing.any()))
    return DateFit(**dataclasses.asdict(fit), has_time=bool((seconds % DAY_SECONDS).any()))


def _category_texts(part: TablePart, name: str) -> tuple[str, ...]:
    return tuple(part.column(name).text_counts())


def fitted_of_run(config: TabularConfig, assets: Assets) -> Preprocessing:
    """Returns what a run fitted on its training rows; of a new run, fits it.

    Raises `DataError` if it has to be fitted and the rows cannot be read, and `RunnerError` if the
    run fitted other columns.
    """
    return assets.get_json(
        PREPROCESSING_FILE,
        lambda: {**_settings(config), **dataclasses.asdict(fit(config))},
        lambda content: _decode_fit(content, config),
    )


def _decode_fit(content: JsonObject, config: TabularConfig) -> Preprocessing:
    for name, value in _settings(config).items():
        if content[name] != value:
            raise RunnerError(
                "differs from the setting that the run was trained with\n"
                "use the config.yaml of the run, or another --model_dir",
                path=f"task.{name}",
                code="other-assets",
            )
    values = with_tuples(content)
    return Preprocessing(
        numeric={name: NumberFit(**fit) for name, fit in values["numeric"].items()},
        categorical=values["categorical"],
        target_name=values["target_name"],
        classes=values["classes"],
        scale=None if values["scale"] is None else NumberFit(**values["scale"]),
        texts={name: TextFit(**fit) for name, fit in values["texts"].items()},
        dates={name: DateFit(**fit) for name, fit in values["dates"].items()},
    )


def _settings(config: TabularConfig) -> JsonObject:
    """Returns the settings that decide which columns are fitted, and how, as JSON values."""
    settings = {"features": config.features.as_dict(), "target": config.target.as_dict()}
    return json.loads(json.dumps(settings))
