"""Metrics of a table by the names of Keras, beside those that a target always has."""

import numpy as np
import pytest

from orbit_runner.reporting.results import Results
from orbit_runner.reporting.results import rows as result_rows
from orbit_runner.tasks.tabular.sources import table_query
from orbit_runner.tasks.tabular.task import TabularTask
from tests.support import problems
from tests.support.evaluations import evaluate
from tests.support.tables import make_rows, table_config

PRICE = {"column": "price", "type": "regression"}


def _outputs(config, model):
    """Returns the targets and outputs of all validation rows."""
    task = TabularTask(config)
    features, targets, _ = next(iter(task.build_inputs(config.validation_data)))
    return targets, model(features, training=False)


@pytest.mark.slow
def test_metrics_of_a_regression_are_those_of_keras(path):
    config = table_config(
        path,
        task__target=PRICE,
        task__weight_column="w",
        task__metrics=["r2_score", "mean_absolute_error"],
        task__validation_data__global_batch_size=7,
    )
    model, logs = evaluate(config)

    task = config.task.replace(
        validation_data=config.task.validation_data.replace(global_batch_size=64)
    )
    part = table_query(task).part("validation_data")
    targets, outputs = _outputs(task, model)
    truth = targets["price"].numpy()[: part.size].astype(np.float64)
    error = outputs["price"].numpy()[: part.size] - truth
    weights = part.column("w").values.astype(np.float64)
    mean = np.average(truth, weights=weights)
    r2 = 1 - (weights * error**2).sum() / (weights * (truth - mean) ** 2).sum()
    assert logs["r2_score"] == pytest.approx(r2, rel=1e-3)
    assert logs["mean_absolute_error"] == pytest.approx(logs["mae"], rel=1e-5)
    assert logs["mae"] == pytest.approx(np.average(np.abs(error), weights=weights), rel=1e-4)


def test_only_evaluations_have_the_metrics_of_the_config(path):
    metrics = ["R2Score", {"class_name": "LogCoshError", "config": {"name": "log_cosh"}}]
    task = TabularTask(table_config(path, task__target=PRICE, task__metrics=metrics).task)
    assert [metric.name for metric in task.build_metrics(training=True)] == ["mae", "rmse"]
    evaluated = [metric.name for metric in task.build_metrics(training=False)]
    assert evaluated == ["mae", "rmse", "r2_score", "log_cosh"]


@pytest.mark.parametrize(
    ("target", "metrics", "code", "path"),
    [
        ("y", ["accuracy"], "set-twice", "[0]"),
        (PRICE, ["auc", "mae"], "set-twice", "[1]"),
        ("y", [{"name": "auc", "multi_label": True}], "not-set", "[0]"),
        ("y", [{"class_name": "auc", "curve": "PR"}], "unknown-name", "[0]"),
        ("y", [{"class_name": "auc"}, {"class_name": "AUC"}], "set-twice", "[1]"),
    ],
)
def test_a_wrong_metric_is_named(target, metrics, code, path):
    with problems.raises(code, f"task.metrics{path}"):
        table_config("a.csv", task__target=target, task__metrics=metrics)


@pytest.mark.parametrize("weight", ["", "w"])
@pytest.mark.parametrize("target", ["y", PRICE], ids=["classes", "numbers"])
def test_baselines_are_what_constants_of_the_training_rows_reach(path, target, weight):
    exclude = ["1", "5"]
    config = table_config(
        path,
        task__target=target,
        task__train_data__exclude=exclude,
        **({"task__weight_column": weight} if weight else {}),
    )
    rows = make_rows()
    parts = {}
    for section in ("train_data", "validation_data"):
        part = table_query(config.task).part(section)
        parts[section] = [rows[row] for row in part.places.all_rows()]
    train = [row for n, row in enumerate(parts["train_data"]) if str(n) not in exclude]
    validation = parts["validation_data"]
    counts = {}
    for row in train:
        counts[row["y"]] = counts.get(row["y"], 0) + (row[weight] if weight else 1)
    majority = max(counts, key=lambda text: counts[text])
    weights = [row["w"] if weight else 1 for row in validation]
    mean = np.average(
        [row["price"] for row in train], weights=[row["w"] if weight else 1 for row in train]
    )
    errors = np.array([row["price"] for row in validation]) - mean

    baselines = config.data.baselines()
    if target == PRICE:
        absolute = np.average(np.abs(errors), weights=weights)
        assert baselines["mae"][1] == pytest.approx(absolute)
        squared = np.average(errors**2, weights=weights)
        assert baselines["rmse"][1] == pytest.approx(squared**0.5)
        return
    hits = [row["y"] == majority for row in validation]
    assert baselines["accuracy"] == ("majority", pytest.approx(np.average(hits, weights=weights)))


def test_results_show_the_baseline_beside_the_metric():
    results = Results(
        experiment="a", mode="train_and_eval", step=1, seconds=1.0, steps_per_second=None,
        parameters=1, metrics={"accuracy": 0.9, "loss": 0.5}, best={}, best_metric="",
        history={}, fingerprint="0", model_dir="a", baselines={"accuracy": ("majority", 0.41)},
    )  # fmt: skip
    rows = dict(result_rows(results))
    assert rows["accuracy"] == "0.9000  majority 0.4100"
    assert rows["loss"] == "0.5000"
