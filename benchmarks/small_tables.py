"""Compares this runner with scikit-learn's models on tables of scikit-learn, on equal splits.

The experiments are trained on five splits (`task.split.seed` 0 to 4); their numbers are those of
the last step, not of the best checkpoint. Tables without any other setting are trained on three
splits, and all models are compared on rows that none of them saw: this runner chooses its best
checkpoint by a fifth of the other rows, on which scikit-learn's models train, too.
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
_SEEDS = range(3)
_PARTS = "{train: 0.64, validation: 0.16, test: 0.2}"


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


def _write_tables(directory: Path) -> dict[str, bool]:
    """Writes a CSV file for each table. Returns whether its target is a number, by name."""
    from sklearn import datasets

    tables: dict[str, Any] = {
        name: getattr(datasets, f"load_{name}")(return_X_y=True)
        for name in ("iris", "wine", "breast_cancer", "diabetes")
    }
    classes = {"flip_y": 0.05, "random_state": 0}
    tables["friedman1"] = datasets.make_friedman1(2000, noise=1.0, random_state=0)
    tables["classification"] = datasets.make_classification(
        2000, 20, n_informative=8, n_redundant=4, n_classes=3, **classes
    )
    tables["friedman1_20k"] = datasets.make_friedman1(20_000, noise=1.0, random_state=0)
    tables["classification_20k"] = datasets.make_classification(
        20_000, 30, n_informative=12, n_redundant=6, n_classes=4, n_clusters_per_class=4, **classes
    )
    for name, (features, target) in tables.items():
        header = ",".join([*(f"x{column}" for column in range(features.shape[1])), "y"])
        values = np.column_stack([features, target])
        path = directory / f"{name}.csv"
        np.savetxt(path, values, "%.7g", ",", header=header, comments="")
    return {name: name in ("diabetes", "friedman1", "friedman1_20k") for name in tables}


def _flags(path: Path, *, is_number: bool, seed: int) -> list[str]:
    target = "{column: y, type: regression}" if is_number else "y"
    return [
        "--task.name=tabular",
        f"--task.targets=[{target}]",
        f"--task.train_data={{source: csv, input_path: {path}}}",
        f"--task.split={{fractions: {_PARTS}, seed: {seed}}}",
        f"--runtime.seed={seed}",
    ]


def _test_runner(directory: Path, flags: list[str], metric: str) -> float:
    """Trains with these flags alone, and returns the result of the best checkpoint."""
    runner = str(Path(sys.executable).with_name("runner"))
    with tempfile.TemporaryDirectory(dir=directory) as run:
        subprocess.run([runner, "run", f"--model_dir={run}/a", "--quiet", *flags], check=True)
        command = [runner, "evaluate", f"{run}/a", "--split=test", "--checkpoint=best", "--json"]
        done = subprocess.run([*command, "--quiet"], check=True, stdout=subprocess.PIPE)
    return float(json.loads(done.stdout)["metrics"][metric])


def _test_sklearn(flags: list[str], model: Any, *, is_number: bool) -> float:
    from orbit_runner.config.resolve import Request, resolve

    overrides = tuple(flag.removeprefix("--").partition("=") for flag in flags)
    config: Any = resolve(Request(flags=tuple((f"--{n}", n, v) for n, _, v in overrides))).config
    test = config.task.replace(validation_data=config.task.validation_data.replace(split="test"))
    parts = [
        (config.task, "train_data"),
        (config.task, "validation_data"),
        (test, "validation_data"),
    ]
    arrays = [_arrays(task, section) for task, section in parts]
    features, labels = (np.concatenate([part[i] for part in arrays[:2]]) for i in (0, 1))
    errors = model.fit(features, labels).predict(arrays[2][0]) - arrays[2][1]
    return float(np.sqrt(np.mean(errors**2)) if is_number else np.mean(errors == 0))


def _sklearn_models(*, is_number: bool) -> dict[str, Any]:
    return _models("diabetes" if is_number else "breast_cancer")


def _report_without_settings() -> list[str]:
    """Returns lines of a table: means over the splits for a path and a target alone."""
    lines = ["| table | rows | metric | this runner | gradient boosting | linear model |"]
    lines.append("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for name, is_number in _write_tables(Path(place)).items():
            path = Path(place) / f"{name}.csv"
            rows = len(path.read_text(encoding="utf-8").splitlines()) - 1
            metric = "rmse" if is_number else "accuracy"
            results: dict[str, list[float]] = {}
            for seed in _SEEDS:
                flags = _flags(path, is_number=is_number, seed=seed)
                result = _test_runner(Path(place), flags, metric)
                results.setdefault("this runner", []).append(result)
                for model, estimator in _sklearn_models(is_number=is_number).items():
                    result = _test_sklearn(flags, estimator, is_number=is_number)
                    results.setdefault(model, []).append(result)
            means = [
                f"{statistics.mean(results[model]):.4g}"
                for model in ("this runner", "gradient boosting", "linear model")
            ]
            lines.append(f"| `{name}` | {rows:,} | {metric} | {' | '.join(means)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def report() -> str:
    """Trains all models on all splits, and returns tables."""
    lines = ["### tables without settings, mean of three splits", "", *_report_without_settings()]
    lines += ["", *_report_experiments()]
    return "\n".join([*lines, ""])


def _report_experiments() -> list[str]:
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
    return lines
