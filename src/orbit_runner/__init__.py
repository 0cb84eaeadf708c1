"""Orbit Runner: a config file is the experiment.

These names are the public API; every other module is private and may move. Each is imported when it
is first used, so that importing this package imports no tensorflow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from orbit_runner.version import __version__

# Name: the module that defines it, below this package.
_MODULES = {
    # Train a Keras model.
    "run": "run_model",
    "RunResult": "run_model",
    # Read runs.
    "load": "saved_run",
    "runs": "saved_run",
    "SavedRun": "saved_run",
    "Runs": "saved_run",
    "History": "saved_run",
    "Plot": "saved_run",
    # Run an experiment.
    "run_experiment": "train_lib",
    "prepare": "train_lib",
    "OrbitExperimentRunner": "train_lib",
    "load_config": "config.resolve",
    "Callback": "train.callbacks.base",
    "RunInfo": "trackers.base",
    "Tracker": "trackers.base",
    # Declare the config of a task.
    "Config": "config.schema.base",
    "DataConfig": "config.schema.data",
    "ExperimentConfig": "config.schema.experiment",
    "TaskConfig": "config.schema.experiment",
    "field": "config.schema.base",
    "TaskData": "config.schema.task_data",
    "register_task": "registry",
    # Write a task.
    "ArraySource": "data.source",
    "Predictor": "tasks.serving",
    "ReportExamples": "tasks.report_examples",
    "Serving": "tasks.serving",
    "SparseAccuracy": "tasks.metrics",
    "RunningMean": "tasks.metrics",
    "Task": "tasks.base",
    "eval_dataset": "data.array_pipeline",
    "train_dataset": "data.array_pipeline",
    # Describe the files that a task reads.
    "DataFile": "data.fingerprint",
    "describe_files": "data.fingerprint",
    # Errors that are shown as one message.
    "DataError": "errors",
    "Diverged": "errors",
    "ExportFailed": "errors",
    "Interrupted": "errors",
    "RunnerError": "errors",
    "SettingError": "errors",
}
__all__ = ["__version__", *_MODULES]

if TYPE_CHECKING:
    from orbit_runner.config.resolve import load_config
    from orbit_runner.config.schema.base import Config, field
    from orbit_runner.config.schema.data import DataConfig
    from orbit_runner.config.schema.experiment import ExperimentConfig, TaskConfig
    from orbit_runner.config.schema.task_data import TaskData
    from orbit_runner.data.array_pipeline import eval_dataset, train_dataset
    from orbit_runner.data.fingerprint import DataFile, describe_files
    from orbit_runner.data.source import ArraySource
    from orbit_runner.errors import (
        DataError,
        Diverged,
        ExportFailed,
        Interrupted,
        RunnerError,
        SettingError,
    )
    from orbit_runner.registry import register_task
    from orbit_runner.run_model import RunResult, run
    from orbit_runner.saved_run import History, Plot, Runs, SavedRun, load, runs
    from orbit_runner.tasks.base import Task
    from orbit_runner.tasks.metrics import RunningMean, SparseAccuracy
    from orbit_runner.tasks.report_examples import ReportExamples
    from orbit_runner.tasks.serving import Predictor, Serving
    from orbit_runner.trackers.base import RunInfo, Tracker
    from orbit_runner.train.callbacks.base import Callback
    from orbit_runner.train_lib import OrbitExperimentRunner, prepare, run_experiment


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
