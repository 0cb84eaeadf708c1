"""Runs this process's part of an experiment and records it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from orbit_runner import exit_codes
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schedule_length import follow_same_run
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.config.serialize import to_yaml
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.distribute.cluster.description import Cluster, MemberLost
from orbit_runner.distribute.parameter_servers import RunEnd, serve_role
from orbit_runner.distribute.tf_environment import prepare_environment, redirect_native_output
from orbit_runner.errors import ExportFailed, format_count
from orbit_runner.jobs.gin_bindings import bind_gin
from orbit_runner.jobs.preflight import compare_data
from orbit_runner.reporting.report_writer import ReportWriter
from orbit_runner.reporting.run_record import RunRecord, describe_devices
from orbit_runner.run_directory.code_version import CodeVersion, keep_patch, read_code_version
from orbit_runner.run_directory.data_record import DataRecord
from orbit_runner.run_directory.metric_records import SPEED
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_lock import RunDirectoryRemoved
from orbit_runner.storage.staging import localize
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.utils.files import read_json_object, write_atomically
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.log import note
from orbit_runner.utils.streams import line_text
from orbit_runner.utils.user_code import user_code

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras
    from official.core import base_task

    from orbit_runner.reporting.progress.history import History
    from orbit_runner.reporting.progress.lines import PlainProgress, QuietProgress
    from orbit_runner.reporting.progress.live import LiveProgress
    from orbit_runner.reporting.results import Results
    from orbit_runner.tasks.multitask import JointTask
    from orbit_runner.train.callbacks.base import Logs, RunView
    from orbit_runner.train.run import Run
    from orbit_runner.utils.types import JsonObject

    # What `make_progress` returns.
    Progress: TypeAlias = PlainProgress | QuietProgress | LiveProgress

# The results in the record of the run, by their names in it.
_RECORDED = {
    "step": "step",
    "steps_per_second": "steps_per_second",
    "metrics": "metrics",
    "weights": "fingerprint",
    "inexact": "inexact",
    "non_finite": "non_finite",
    "non_finite_metrics": "non_finite_metrics",
    "data": "data",
}
# After these, a run can go on: `--stop_at_step`, divergence, and signals.
CONTINUED_CODES = (0, exit_codes.DIVERGED, *map(exit_codes.after_signal, (1, 2, 15)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """This process's part of an experiment."""

    resolved: ResolvedConfig  # config as given, with the origin of each value
    config: ExperimentConfig  # config of this process, which its role may change
    mode: str
    model_dir: Path
    cluster: Cluster | None = None  # the cluster that this process is a member of
    asynchronous: bool = True  # whether checkpoints are saved in the background
    data: DataRecord | None = None  # the data, compared with the previous record
    callbacks: tuple[Callback, ...] = ()  # that a program passed, after those of the config
    command: tuple[str, ...] = ()  # that started the process; () for this command line
    stop_at_step: int | None = None  # the step at which to save and exit, before the last one
    resume: str = "same"  # whether the run may be resumed with another config: `override`

    @property
    def writes_results(self) -> bool:
        """Whether this process writes results: without a cluster, as chief or as evaluator."""
        return self.cluster is None or self.cluster.is_chief or self.cluster.me.role == "evaluator"

    @property
    def argv(self) -> list[str]:
        """The command that started this process."""
        return [*(self.command or ("runner", *sys.argv[1:]))]

    @property
    def is_server(self) -> bool:
        """Whether this process only serves its devices to the chief."""
        if not self.config.runtime.traits.is_asynchronous:
            return False
        return self.cluster is not None and self.cluster.me.role in ("worker", "ps")


def default_model_dir(name: str) -> Path:
    """Returns the run directory of a run that is given none: `runs/NAME/TIME`."""
    return Path("runs") / (name or "run") / time.strftime("%Y%m%d-%H%M%S")


def check_data(job: Job) -> DataRecord:
    """Returns the record of the data, after comparing them with the previous record.

    Logs notes about differences. Raises `DataChanged` if the data changed, unless `job.resume` is
    `override`.
    """
    record = compare_data(job.resolved, job.model_dir)
    if not any(RunDirectory(job.model_dir).checkpoints.glob("*.index")):
        return record.clear_comparison()
    if job.resume == "same":
        record.check()
    for text in record.notes():
        note(f"note: {text}")
    return record


def serve(job: Job) -> int:
    """Serves this process's devices until the chief is done. Returns the exit code."""
    prepare_process(job)
    assert job.cluster is not None
    return serve_role(job.cluster, RunEnd(job.model_dir, job.cluster.me))


def prepare_process(job: Job) -> None:
    """Prepares this process. Must be called before TensorFlow is imported."""
    prepare_environment(job.config.runtime)
    if job.cluster is not None:
        me = job.cluster.me
        redirect_native_output(job.model_dir / ".cluster" / f"{me.role}-{me.index}.stderr")
    elif job.config.runtime.remote_cluster:
        redirect_native_output(job.model_dir / ".cluster" / "chief-0.stderr")


def run_job(job: Job, progress: Progress) -> tuple[tf_keras.Model, Results]:
    """Trains, evaluates, or both. Returns the model and the `Results`."""
    with _server_shutdown_scope(job), source_cache_scope():
        return _run(job, progress)


def _run(job: Job, progress: Progress) -> tuple[tf_keras.Model, Results]:
    strategy, task, record = start_job(job)
    from orbit_runner import train_lib
    from orbit_runner.train.request import RunRequest

    note(_describe_placement(job, strategy))
    writes = job.mode in TRAINING and job.writes_results
    report = ReportWriter(job.model_dir, job.config.trainer.report_interval if writes else 0.0)
    writers = [ConfigWriter(job), report] if writes else []
    begin = _RunBegin(record if writes else None)
    request = RunRequest(
        config=job.config,
        task=task,
        mode=job.mode,
        model_dir=job.model_dir,
        strategy=strategy,
        asynchronous=job.asynchronous,
        callbacks=[*job.callbacks, progress, *writers, begin],
        data=job.data,
        stop_at_step=job.stop_at_step,
        resume=job.resume,
    )
    start = time.monotonic()
    export_problem = ""
    try:
        _, logs = train_lib.run_request(request)
    except ExportFailed as error:
        # The run itself is complete.
        logs = error.logs
        export_problem = error.reason
    except RunDirectoryRemoved:
        raise  # Writing `run.json` would create the directory again.
    except BaseException as error:
        # Raise the error itself, even if the disk is full or missing.
        with contextlib.suppress(OSError):
            record.finish(f"{type(error).__name__}: {error}")
            report.write()
        raise
    seconds = time.monotonic() - start
    run = begin.run
    results = _make_results(job, progress, run, logs, seconds, export_problem)
    if writes:
        import gin

        write_atomically(job.model_dir / "operative_config.gin", gin.operative_config_str())
    record.finish(
        "done",
        **{name: getattr(results, attribute) for name, attribute in _RECORDED.items()},
        **({"export_problem": export_problem} if export_problem else {}),
    )
    report.write()
    if run.state.ema is not None:
        run.state.ema.apply()  # The metrics are those of the averaged weights.
    return run.model, results


@contextlib.contextmanager
def _server_shutdown_scope(job: Job) -> Iterator[None]:
    """Releases the cluster's servers at the end, but not after `MemberLost`: the chief restarts."""
    runtime = job.config.runtime
    if not runtime.traits.is_asynchronous or runtime.remote_cluster:
        yield
        return
    run_end = RunEnd(job.model_dir)
    run_end.begin()
    try:
        yield
    except MemberLost:
        raise
    except BaseException as error:
        run_end.tell_servers(getattr(error, "exit_code", 1))
        raise
    run_end.tell_servers(0)


def start_job(
    job: Job, **values: object
) -> tuple[tf.distribute.Strategy, base_task.Task | JointTask, RunRecord]:
    """Returns the strategy, the task, and the record, which has `values`. Imports TensorFlow."""
    # Before the imports below, which take seconds in which files may be edited.
    code = read_code_version(job.model_dir) if job.writes_results else CodeVersion()
    user_code()
    with paused_collection_scope():
        from orbit_runner import train_lib

        bind_gin(job.resolved)
        strategy, task = train_lib.prepare(
            job.config, str(job.model_dir), cluster=job.cluster, mode=job.mode
        )
    cluster = {"cluster": job.cluster.as_dict()} if job.cluster else {}
    replicas = strategy.num_replicas_in_sync
    record = start_record(
        job, code, **cluster, devices=describe_devices(), replicas=replicas, **values
    )
    return strategy, task, record


def start_record(job: Job, code: CodeVersion, **values: object) -> RunRecord:
    """Starts the record of a run, with its experiment, code and `values`. Saves the code patch."""
    path = RunDirectory(job.model_dir).record(job.mode) if job.writes_results else None
    record = RunRecord(path, job.argv, job.mode, job.config.runtime.seed, note)
    config = job.resolved.config
    keeps = job.mode in TRAINING and config.trainer.keep_code_patch
    record.update(
        experiment=config.name,
        changes=job.resolved.changes(),
        best=_best_rule(config),
        code=keep_patch(code, job.model_dir) if keeps else code.as_dict(),
        **values,
    )
    return record


def _best_rule(config: ExperimentConfig) -> dict[str, str] | None:
    """Returns which metric determines the best checkpoint, and where its metrics are."""
    trainer = config.trainer
    metric = trainer.best_checkpoint_eval_metric
    directory = trainer.best_checkpoint_export_subdir
    return {"metric": metric, "directory": directory} if metric and directory else None


def _describe_placement(job: Job, strategy: tf.distribute.Strategy) -> str:
    """Returns a text with the strategy, its devices and the members of the cluster."""
    from orbit_runner.distribute.devices import local_devices

    runtime = job.config.runtime
    devices = ", ".join(local_devices(strategy))
    replicas = strategy.num_replicas_in_sync
    together = f"{format_count(replicas, 'replica')} in sync"
    if runtime.traits.is_asynchronous:
        together = "asynchronous workers"
    lines = [f"{runtime.distribution_strategy}: {together}; local devices: {devices}"]
    if job.cluster is not None:
        cluster = job.cluster
        lines[0] = f"{cluster.me} of a cluster ({cluster.source}), {lines[0]}"
        lines += [f"  {member}  {member.address}" for member in cluster.members()]
    return "\n".join(lines)


class ConfigWriter(Callback):
    """Writes the config that reproduces the run, once the run has a state that matches it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._has_written = False

    def on_run_begin(self, run: RunView | None) -> None:
        """Writes the config once: a run that restarts after divergence is the same run."""
        if self._has_written:
            return
        config = self._job.resolved.config
        if run is not None:
            # The data of the run, which has been read now, decides which numbers `auto` stands for.
            config = follow_same_run(config, run.written_config)
        command = line_text(shlex.join(self._job.argv))
        text = f"# Made by: {command}\n{to_yaml(config)}"
        write_atomically(RunDirectory(self._job.model_dir).config, text)
        self._has_written = True


class _RunBegin(Callback):
    """Keeps the run, and records what is known once it begins: its last step, its warnings."""

    run: Any = None

    def __init__(self, record: RunRecord | None) -> None:
        self._record = record  # None: records nothing

    def on_run_begin(self, run: Any) -> None:
        """Adds the step, which may follow from `trainer.train_epochs`, and the warnings."""
        self.run = run
        if self._record is None:
            return
        warnings = list(run.records.warnings)
        known = {"warnings": warnings} if warnings else {}
        self._record.update(train_steps=run.train_steps, **known)


def _make_results(
    job: Job, history: History, run: Run, logs: Logs, seconds: float, export_problem: str
) -> Results:
    from orbit_runner.checkpoint.fingerprint import (
        describe_non_finite,
        non_finite_variables,
        weights_fingerprint,
    )
    from orbit_runner.reporting.results import Results
    from orbit_runner.utils.metrics import scalars

    config = job.config
    weights = run.model.trainable_variables
    subdir = config.trainer.best_checkpoint_export_subdir
    best: JsonObject = {}
    if subdir:
        with contextlib.suppress(OSError, ValueError):  # Not written yet, removed or damaged.
            best = read_json_object(job.model_dir / subdir / "info.json")
    # The speed of the last evaluation, which is not that of the run.
    metrics = {name: value for name, value in scalars(logs).items() if name != SPEED}
    curves = {
        name: [result.get(name, float("nan")) for _, result in history.evaluations]
        for name in metrics
    }
    return Results(
        experiment=config.name,
        mode=job.mode,
        step=history.last_step,
        seconds=seconds,
        steps_per_second=history.steps_per_second,
        parameters=sum(variable.shape.num_elements() for variable in weights),
        metrics=metrics,
        best=best,
        best_metric=config.trainer.best_checkpoint_eval_metric,
        history=curves,
        fingerprint=weights_fingerprint(run.model),
        model_dir=str(job.model_dir),
        inexact=history.inexact,
        tflops_per_second=history.work.get("tflops_per_second"),
        mfu=history.work.get("mfu"),
        export_problem=export_problem,
        non_finite=describe_non_finite(non_finite_variables(weights)),
        non_finite_metrics=[name for name, value in metrics.items() if not math.isfinite(value)],
        data=run.records.data,
        baselines=localize(config).data.baselines_of(metrics) if metrics else {},
    )
