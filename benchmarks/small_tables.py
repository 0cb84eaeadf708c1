"""Compares the experiments on tables of scikit-learn with scikit-learn's models, on equal splits.

Each model is trained on the same five splits (`task.split.seed` 0 to 4). The numbers of this runner
are those of the last step, not of the best checkpoint.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_SPLITS = range(5)
_METRICS = {"breast_cancer": ("accuracy",), "diabetes": ("rmse", "mae")}
_Results = dict[str, list[dict[str, float]]]


def _config(experiment: str, split: int) -> Any:
    from orbit_runner.config.resolve import Request, resolve

    changes = (f"task.split.seed={split}",)
    return resolve(Request(experiment=experiment, params_overrides=changes)).config.task


def _arrays(task: Any, section: str) -> tuple[np.ndarray, np.ndarray]:
    from orbit_runner.tasks.tabular.sources import feature_kinds, load_part

    part = load_part(task, section)
    features = np.column_stack([part.column(name).values for name in feature_kinds(task)])
    return features, part.column(task.targets[0].column).values


def _train_sklearn(experiment: str, split: int, model: Any) -> dict[str, float]:
    task = _config(experiment, split)
    model.fit(*_arrays(task, "train_data"))
    features, labels = _arrays(task, "validation_data")
    errors = model.predict(features) - labels
    found = {"accuracy": np.mean(errors == 0), "rmse": np.sqrt(np.mean(errors**2))}
    found["mae"] = np.mean(np.abs(errors))
    return {name: float(found[name]) for name in _METRICS[experiment]}


def _train_runner(experiment: str, split: int) -> dict[str, float]:
    last = last_evaluation(experiment, f"--task.split.seed={split}")
    return {name: last[name] for name in _METRICS[experiment]}


def last_evaluation(experiment: str, *flags: str) -> dict[str, float]:
    """Runs an experiment, and returns the record of its last evaluation."""
    with tempfile.TemporaryDirectory() as place:
        command = [str(Path(sys.executable).with_name("runner")), f"--experiment={experiment}"]
        command += [f"--model_dir={place}", "--quiet", *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = (Path(place) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    found: dict[str, float] = [json.loads(line) for line in lines if "validation_loss" in line][-1]
    return found


def _models(experiment: str) -> dict[str, Any]:
    from sklearn import ensemble, linear_model, pipeline, preprocessing

    if experiment == "breast_cancer":
        linear: Any = linear_model.LogisticRegression(max_iter=1000)
        boosting: Any = ensemble.HistGradientBoostingClassifier(random_state=0)
    else:
        linear = linear_model.LinearRegression()
        boosting = ensemble.HistGradientBoostingRegressor(random_state=0)
    scaled = pipeline.make_pipeline(preprocessing.StandardScaler(), linear)
    return {"linear model": scaled, "gradient boosting": boosting}


def report() -> str:
    """Trains all models on all splits, and returns a table."""
    lines = ["### tables of scikit-learn, mean of five splits", ""]
    lines += ["| | metric | model | mean | lowest to highest |", "|---|---|---|---|---|"]
    for experiment, metrics in _METRICS.items():
        results: _Results = {"this runner": [_train_runner(experiment, one) for one in _SPLITS]}
        for name, model in _models(experiment).items():
            results[name] = [_train_sklearn(experiment, one, model) for one in _SPLITS]
        for metric in metrics:
            for name, found in results.items():
                values = [one[metric] for one in found]
                digits = 3 if metric == "accuracy" else 1
                lines.append(
                    f"| `{experiment}` | {metric} | {name} | {statistics.mean(values):.{digits}f} "
                    f"| {min(values):.{digits}f} to {max(values):.{digits}f} |"
                )
    return "\n".join([*lines, ""])
