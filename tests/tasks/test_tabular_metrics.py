"""Metrics of a table by the names of Keras, beside those that a target always has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras

from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.tabular.sources import load_part
from orbit_runner.tasks.tabular.task import TabularTask
from tests.support import problems
from tests.support.tables import table_config
from tests.support.toy import run

PRICE = {"column": "price", "type": "regression"}
MIXED = [{"column": "y"}, PRICE]


def _outputs(config: TabularConfig, model: tf_keras.Model) -> tuple[Any, Any]:
    """Returns the targets and outputs of all validation rows."""
    task = TabularTask(config)
    features, targets, _ = next(iter(task.build_inputs(config.validation_data)))
    return targets, model(features, training=False)


@pytest.mark.slow
@pytest.mark.parametrize("weight", ["", "w"])
def test_metrics_of_a_regression_are_those_of_keras(
    path: Path, tmp_path: Path, weight: str
) -> None:
    config = table_config(
        path,
        task__targets=[PRICE],
        **({"task__weight_column": weight} if weight else {}),
        task__metrics=["r2_score", "mean_absolute_error"],
        task__validation_data__global_batch_size=7,
        trainer__train_steps=4,
        trainer__validation_interval=4,
    )
    model, logs = run(config, tmp_path / "run")

    whole: Any = config.task.replace(
        validation_data=config.task.validation_data.replace(global_batch_size=64)
    )
    part = load_part(whole, "validation_data")
    targets, outputs = _outputs(whole, model)
    truth = targets["price"].numpy()[: part.size].astype(np.float64)
    error = outputs["price"].numpy()[: part.size] - truth
    weights = np.ones(part.size)
    if weight:
        weights = part.column("w").values.astype(np.float64)
    mean = np.average(truth, weights=weights)
    r2 = 1 - (weights * error**2).sum() / (weights * (truth - mean) ** 2).sum()
    assert logs["r2_score"] == pytest.approx(r2, rel=1e-3)
    assert logs["mean_absolute_error"] == pytest.approx(logs["mae"], rel=1e-5)
    assert logs["mae"] == pytest.approx(np.average(np.abs(error), weights=weights), rel=1e-4)


def test_only_evaluations_have_the_metrics_of_the_config(path: Path) -> None:
    metrics = [
        {"class_name": "R2Score", "target": "price"},
        {"class_name": "F1Score", "config": {"average": "macro", "name": "f1"}, "target": "y"},
    ]
    config: Any = table_config(path, task__targets=[PRICE, "y"], task__metrics=metrics).task
    task = TabularTask(config)
    always = ["price_mae", "price_rmse", "y_accuracy"]
    assert [metric.name for metric in task.build_metrics(training=True)] == always
    evaluated = [metric.name for metric in task.build_metrics(training=False)]
    assert evaluated == [*always, "price_r2_score", "y_f1"]


@pytest.mark.parametrize(
    ("targets", "metrics", "code", "path"),
    [
        (["y"], ["accuracy"], "set-twice", "[0]"),
        ([PRICE], ["auc", "mae"], "set-twice", "[1]"),
        (["y"], [{"name": "auc", "multi_label": True}], "not-set", "[0]"),
        (MIXED, [{"name": "auc", "target": "y"}], "not-set", "[0]"),
        (MIXED, [{"class_name": "auc", "target": "y", "curve": "PR"}], "unknown-name", "[0]"),
        (["y"], [{"class_name": "auc", "target": "x"}], "unknown-name", "[0].target"),
        (MIXED, ["r2_score"], "not-supported", "[0]"),
        (MIXED, [{"class_name": "auc", "target": "y"}, {"class_name": "AUC", "target": "y"}],
         "set-twice", "[1]"),
    ],
)  # fmt: skip
def test_a_wrong_metric_is_named(
    targets: list[Any], metrics: list[Any], code: str, path: str
) -> None:
    with problems.raises(code, f"task.metrics{path}"):
        table_config("a.csv", task__targets=targets, task__metrics=metrics)
