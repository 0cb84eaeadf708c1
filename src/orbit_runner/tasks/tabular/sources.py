"""What the tabular task reads of its tables, and its classes. Does not import TensorFlow."""

from __future__ import annotations

from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, TEXT
from orbit_runner.errors import DataError
from orbit_runner.tasks.imbalance.classes import Classes, classes_of_column
from orbit_runner.tasks.shared_config import SECTIONS
from orbit_runner.tasks.table_query import FEATURE, TARGET, TRAIN, WEIGHT, NamedColumn, TableQuery
from orbit_runner.tasks.tabular.config import CLASSIFICATION, REGRESSION, TabularConfig


def table_query(config: TabularConfig) -> TableQuery:
    """Returns what a config reads of its tables."""
    features, target = config.features, config.target
    kinds = {CLASSIFICATION: CATEGORY, REGRESSION: NUMBER}
    columns = (
        ("target.column", target.column, kinds[target.type], TARGET),
        *(("weight_column", name, NUMBER, WEIGHT) for name in [config.weight_column] if name),
        *(("features.numeric", name, NUMBER, FEATURE) for name in features.numeric),
        *(("features.categorical", name, CATEGORY, FEATURE) for name in features.categorical),
        *(("features.date", name, DATE, FEATURE) for name in features.date),
        *(
            (f"features.text[{n}].column", text.column, TEXT, FEATURE)
            for n, text in enumerate(features.text)
        ),
    )
    return TableQuery(
        sections={section: config.section(section) for section in SECTIONS},
        columns=[NamedColumn(*column) for column in columns],
        features="features",
        advice="list the column in features.exclude, or in features.numeric, date or "
        "categorical with all other features",
        advice_by_role={
            TARGET: "if its values are classes, remove type: regression",
            FEATURE: "to use its texts as categories, list the column in features.categorical",
        },
        numbers="target: {{column: {}, type: regression}}",
        exclude=features.exclude,
        split=config.split,
    )


def target_classes(config: TabularConfig) -> Classes:
    """Returns the class of each training row. Raises `DataError` if the target is a number."""
    if config.target.type == REGRESSION:
        raise DataError("the target is a number, and has no classes", code="not-supported")
    return classes_of_column(table_query(config).part(TRAIN).column(config.target.column))
