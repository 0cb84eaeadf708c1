"""Config of text classification and of its networks."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.base import Config, Rule, config_class, field
from orbit_runner.registry import TEXT_CLASSIFIERS
from orbit_runner.tasks.class_metrics import metric_problems
from orbit_runner.tasks.tabular.config import (
    FeaturesConfig,
    TableTaskConfig,
    TabularConfig,
    TargetConfig,
    TextColumnConfig,
)


@config_class
class TextClassifierConfig(Config):
    """A network that classifies texts, selected by name."""

    name: str = field("", help="name of the model; `runner list` shows all")
    embedding_width: int = field(64, ge=1, le=65536, help="width of the embeddings of tokens")
    dropout_rate: float = field(0.0, ge=0.0, le=0.99, help="dropout rate of each layer")
    hidden_units: list[int] = field(
        (), ge=1, le=65536, help="number of units in each hidden layer; []: a linear model"
    )


def _text_column() -> TextColumnConfig:
    return TextColumnConfig(column="text")


@config_class
class TextClassificationConfig(TableTaskConfig):
    """Classification of texts: a table with a column of texts and a column of classes."""

    _rules = (
        Rule("text.column", lambda task: not task.text.column, "is not set", "not-set"),
        Rule("label_column", lambda task: not task.label_column, "is not set", "not-set"),
        Rule("label_column", lambda task: task.text.column == task.label_column,
             "{value!r} is also text.column", "conflict"),
    )  # fmt: skip
    model: TextClassifierConfig = field(
        factory=TextClassifierConfig, help="the model", variants=TEXT_CLASSIFIERS
    )
    text: TextColumnConfig = field(factory=_text_column, help="the column of texts")
    label_column: str = field("label", help="column of classes")

    def problems(self) -> Iterator[Problem]:
        """Yields settings that are missing, unknown or contradictory."""
        yield from super().problems()
        yield from metric_problems(dict(enumerate(self.metrics)), taken=("accuracy",))

    def to_tabular_config(self) -> TabularConfig:
        """Returns this task as one on a table, with one text feature and one target."""
        return TabularConfig(
            features=FeaturesConfig(text=[self.text]),
            targets=[TargetConfig(column=self.label_column)],
            class_weights=self.class_weights,
            metrics=self.metrics,
            split=self.split,
            train_data=self.train_data,
            validation_data=self.validation_data,
        )
