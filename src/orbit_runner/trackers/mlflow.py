"""Sends the records of a run to MLflow: a tracking server, or an SQLite database."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from orbit_runner.config.serialize import inline_yaml
from orbit_runner.trackers.base import NamedTracker, RunInfo
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

_Item = TypeVar("_Item")

# MLflow's limits, or those of older servers if they are lower.
_MAX_METRICS = 1000
_MAX_PARAMS = 100
_MAX_NAME = 250
_MAX_VALUE = 500
_FORBIDDEN = re.compile(r"[^\w\-./ :]")
_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_DEFAULT = "sqlite:///mlflow.db"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # The runner repeats calls itself. By default, MLflow does so for minutes, which would delay the
    # end of a run.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


class MLflowTracker(NamedTracker):
    """Keeps settings as parameters, records as metrics, and results as tags of an MLflow run.

    A resumed run continues the same MLflow run. Records that it already has are not sent again.
    """

    modules = ("mlflow", "sqlalchemy")
    advice = "check tracking_uri, or MLFLOW_TRACKING_URI, and that the server is running"

    def __init__(
        self, experiment_name: str = "", run_name: str = "", tracking_uri: str = ""
    ) -> None:
        self._experiment_name = experiment_name
        self._run_name = run_name
        self._uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or _DEFAULT
        self._metrics: list[Metric] = []
        # The steps that MLflow has from earlier starts, by split.
        self._known: dict[str, set[int]] = {}

    @classmethod
    def argument_problems(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        """Yields that the address contains a password, if it does."""
        if _has_secret(arguments.get("tracking_uri", "")):
            yield (
                "tracking_uri: contains a user name or password, which would be stored in the "
                "run directory\nset the environment variable MLFLOW_TRACKING_URI instead, or "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )

    def start(self, run: RunInfo) -> str:
        """Creates the MLflow run, or continues the earlier one. Returns its id."""
        self._added = [name for name in _ENVIRONMENT if name not in os.environ]
        os.environ.update({name: _ENVIRONMENT[name] for name in self._added})
        from mlflow import MlflowClient

        self._client = MlflowClient(tracking_uri=self._uri)
        mlflow_run = self._earlier_run(run.previous_id)
        if mlflow_run is None:
            mlflow_run = self._client.create_run(
                self._experiment_id(run.name), run_name=self._run_name or _name_of(run)
            )
        else:
            self._client.update_run(mlflow_run.info.run_id, status="RUNNING")
            self._known = self._logged_steps(mlflow_run)
        self._id = str(mlflow_run.info.run_id)
        self._send_settings(run, mlflow_run.data.params)
        return self._id

    def log(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Collects the metrics, with the names `split/name`."""
        if step in self._known.get(split, ()):
            return
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._metrics += [
            Metric(_sanitize_name(f"{split}/{name}"), value, now, step)
            for name, value in metrics.items()
        ]

    def flush(self) -> None:
        """Sends the collected metrics."""
        while self._metrics:
            self._client.log_batch(self._id, metrics=self._metrics[:_MAX_METRICS])
            del self._metrics[:_MAX_METRICS]

    def finish(self, status: str, results: Mapping[str, str]) -> None:
        """Adds the results as tags, and ends the MLflow run."""
        self._send_tags(results)
        self._client.set_terminated(self._id, _STATUS[status])
        for name in self._added:  # A notebook may use MLflow itself.
            os.environ.pop(name, None)

    def _earlier_run(self, run_id: str | None) -> Run | None:
        """Returns the run with an id, or None if there is none in this store."""
        if run_id is None:
            return None
        from mlflow.exceptions import MlflowException

        try:
            mlflow_run = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            mlflow_run = None
        if mlflow_run is None or mlflow_run.info.lifecycle_stage == "deleted":
            note(f"tracker mlflow: run {run_id} was not found; creating another")
            return None
        return mlflow_run

    def _experiment_id(self, name: str) -> str:
        name = self._experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or name
        experiment = self._client.get_experiment_by_name(name)
        if experiment is not None:
            return str(experiment.experiment_id)
        return str(self._client.create_experiment(name))

    def _logged_steps(self, mlflow_run: Run) -> dict[str, set[int]]:
        first = {
            name.partition("/")[0]: name for name in sorted(mlflow_run.data.metrics, reverse=True)
        }
        return {
            split: {m.step for m in self._client.get_metric_history(mlflow_run.info.run_id, name)}
            for split, name in first.items()
        }

    def _send_settings(self, run: RunInfo, known: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        settings = {_sanitize_name(name): _truncate(value) for name, value in run.settings.items()}
        # MLflow does not change parameters.
        new = [Param(name, value) for name, value in settings.items() if name not in known]
        for batch in _batches(new, _MAX_PARAMS):
            self._client.log_batch(self._id, params=batch)
        self._send_tags(
            {"experiment": run.name, "mode": run.mode, "run_directory": str(run.directory)}
        )

    def _send_tags(self, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        run_tags = [
            RunTag(_sanitize_name(name), value[:_MAX_VALUE]) for name, value in tags.items()
        ]
        for batch in _batches(run_tags, _MAX_PARAMS):
            self._client.log_batch(self._id, tags=batch)


def _has_secret(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        return bool(parts.username or parts.password)
    except ValueError:
        return False


def _name_of(run: RunInfo) -> str:
    name = f"{run.name}/{run.directory.name}"
    return name if run.mode.startswith("train") else f"{name} ({run.mode})"


def _sanitize_name(name: str) -> str:
    return _FORBIDDEN.sub("_", name)[:_MAX_NAME]


def _truncate(value: object) -> str:
    text = inline_yaml(value)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"


def _batches(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
