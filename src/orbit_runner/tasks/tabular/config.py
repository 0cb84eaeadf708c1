"""Config of the tabular task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from orbit_runner.config.errors import Problem, conflict, no_effect, not_set, not_supported
from orbit_runner.config.schema.base import Config, config_class, field
from orbit_runner.config.schema.data import training_field, validation_field
from orbit_runner.registry import TABLE_MODELS
from orbit_runner.tasks.class_metrics import STANDARD_METRICS, metric_problems
from orbit_runner.tasks.shared_config import ClassificationTaskConfig, SplitTaskConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig

CLASSIFICATION, REGRESSION = "classification", "regression"


@config_class
class TextColumnConfig(Config):
    """A column of texts, which are split into words. In a list, its name alone is sufficient."""

    shorthand: ClassVar[str] = "column"
    column: str = field("", help="column of texts")
    vocab_size: int = field(
        10_000,
        ge=8,
        le=2**24,
        help="largest number of token ids; they are the most frequent words of the training texts",
    )
    max_length: int = field(
        64, ge=1, le=2**16, help="number of words, from the first, that the model sees of a text"
    )


@config_class
class FeaturesConfig(Config):
    """The columns that the model sees."""

    numeric: list[str] = field(
        (), help="columns of numbers; if the four lists are empty, all other columns are features"
    )
    categorical: list[str] = field((), help="columns of texts, each of which is a category")
    date: list[str] = field(
        (),
        help="columns of dates, with or without a time, as in ISO 8601: 2024-01-31 or "
        "2024-01-31T10:30",
    )
    text: list[TextColumnConfig] = field(
        (),
        help="columns of texts, which are split into words, such as `text` of `source: text_files`",
    )
    exclude: list[str] = field(
        (),
        help="columns that are not features; all other columns are, so list no features",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields columns that are listed twice, and texts without a column."""
        if self.exclude and self.names:
            message = "has no effect beside numeric, categorical, date or text, which list all"
            yield no_effect("exclude", message)
        names = [*self.numeric, *self.categorical, *self.date]
        for name in sorted({name for name in names if names.count(name) > 1}):
            message = f"{name!r} is listed twice in numeric, categorical and date"
            yield Problem("categorical", message, code="set-twice")
        for index, text in enumerate(self.text):
            path = f"text[{index}].column"
            if not text.column:
                yield not_set(path, "is not set")
            elif text.column in self.names[: len(names) + index]:
                yield Problem(path, f"{text.column!r} is listed twice", code="set-twice")

    @property
    def names(self) -> list[str]:
        """The listed columns; empty if all other columns are features."""
        return [*self.numeric, *self.categorical, *self.date, *(text.column for text in self.text)]


@config_class
class TargetConfig(Config):
    """The column to predict. For classification, its name alone is sufficient."""

    shorthand: ClassVar[str] = "column"
    column: str = field("", help="column to predict")
    type: str = field(
        CLASSIFICATION,
        allowed=(CLASSIFICATION, REGRESSION),
        help="classification: its values are classes; regression: numbers",
    )


@config_class
class TabularModelConfig(Config):
    """A network for tables, selected by name."""

    name: str = field("", help="name of the model; `runner list` shows all")
    hidden_units: list[int] = field(
        (64, 32), ge=1, le=65536, help="number of units in each hidden layer"
    )
    dropout_rate: float = field(0.0, ge=0.0, le=0.99, help="dropout rate after each hidden layer")
    embedding_width: int | None = field(
        None,
        ge=1,
        le=4096,
        help="width of the embeddings of categorical columns with more than 10 different texts, "
        "and of text columns; by default the square root of the number of texts or token ids, at "
        "most 50",
    )


@config_class
class TabularConfig(SplitTaskConfig, ClassificationTaskConfig):
    """Classification and regression of the rows of a table."""

    model: TabularModelConfig = field(
        factory=TabularModelConfig, help="the model", variants=TABLE_MODELS
    )
    features: FeaturesConfig = field(factory=FeaturesConfig, help="columns that the model sees")
    target: TargetConfig = field(factory=TargetConfig, help="column to predict")
    weight_column: str = field(
        "",
        help="column with the weight of each row, scaled to a mean of 1 in each section; by "
        "default all equal",
    )
    train_data: TableDataConfig = training_field(TableDataConfig)
    validation_data: TableDataConfig = validation_field(TableDataConfig)

    def problems(self) -> Iterator[Problem]:
        """Yields settings that are missing, unknown or contradictory."""
        yield from super().problems()
        target = self.target
        if not target.column:
            yield not_set("target.column", "is not set; set it to the column to predict")
        elif target.column in self.features.names:
            yield conflict("target.column", f"{target.column!r} is also a feature")
        elif target.column in self.features.exclude:
            message = f"{target.column!r} is in features.exclude, but the target"
            yield conflict("target.column", message)
        settings = {
            "class_weights": self.class_weights,
            "train_data.class_sampling": self.train_data.class_sampling,
        }
        for name, value in settings.items():
            if value and target.type == REGRESSION:
                yield not_supported(name, "is for classes, and the target is a number")
        yield from metric_problems(self.metrics, STANDARD_METRICS[target.type])
