"""One process's part in an experiment, run in this process, and the record that is kept of it."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orbit_runner.cli.gin_bindings import bind_gin
from orbit_runner.config.resolve import Resolved
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.config.serialize import to_yaml
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.distribute.cluster.errors import MemberLost
from orbit_runner.distribute.cluster.shutdown import Guest, Host
from orbit_runner.distribute.tf_environment import keep_native_output, prepare_environment
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_lock import RunDirectoryRemoved
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.log import note


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What this process is to do.

    Attributes:
        resolved: The config as it was given, and where each value came from.
        config: The config of this process, whose role may change it.
        mode: What it does.
        model_dir: The folder of the run.
        cluster: The cluster that it is a member of, if any.
        asynchronous: Whether checkpoints are saved beside training.
        allow_partial: Whether a checkpoint may fit in part.
        data: Writes the record of the data, where the run keeps one.
    """

    resolved: Resolved
    config: ExperimentConfig
    mode: str
    model_dir: Path
    cluster: Cluster | None
    asynchronous: bool
    allow_partial: bool
    data: Callback = dataclasses.field(default_factory=Callback)

    @property
    def writes(self) -> bool:
        """Whether this process writes what it finds: the chief does, and an evaluator."""
        return self.cluster is None or self.cluster.is_chief or self.cluster.me.role == "evaluator"

    @property
    def serves(self) -> bool:
        """Whether this process only lends its devices to the chief."""
        if not self.config.runtime.traits.is_asynchronous:
            return False
        return self.cluster is not None and self.cluster.me.role in ("worker", "ps")


def serve(job: Job) -> int:
    """Lends this process's devices to the chief, until that is done.

    Args:
        job: A job that serves.

    Returns:
        The exit code.

    Raises:
        RunnerError: The port is in use, or TensorFlow does not start the server.
    """
    make_ready(job)
    from orbit_runner.distribute.servers import serve_role

    assert job.cluster is not None
    guest = Guest(job.model_dir, job.cluster.me)
    return serve_role(job.cluster, left=guest.left, announce=guest.announce)


def make_ready(job: Job) -> None:
    """Sets what has to be set before tensorflow is imported.

    Args:
        job: What this process is to do.
    """
    prepare_environment(job.config.runtime)
    if job.cluster is not None:
        me = job.cluster.me
        keep_native_output(job.model_dir / ".cluster" / f"{me.role}-{me.index}.stderr")
    elif job.config.runtime.remote_cluster:
        keep_native_output(job.model_dir / ".cluster" / "chief-0.stderr")


def run_job(job: Job, progress: Any) -> Any:
    """Trains, evaluates, or both.

    Args:
        job: What to do.
        progress: Shows how it goes on, and remembers.

    Returns:
        The `Results`.

    Raises:
        RunnerError: It cannot run as it is written, diverged, or was interrupted.
    """
    with _servers_dismissed(job):
        return _run(job, progress)


def _run(job: Job, progress: Any) -> Any:
    with paused_collection_scope():
        from orbit_runner import train_lib

        bind_gin(job.resolved)
        strategy, task = train_lib.prepare(
            job.config, str(job.model_dir), cluster=job.cluster, mode=job.mode
        )
    record = _record(job, strategy)
    start = time.monotonic()
    try:
        model, logs = train_lib.run_experiment(
            strategy,
            task,
            job.mode,
            job.config,
            str(job.model_dir),
            enable_async_checkpointing=job.asynchronous,
            callbacks=_callbacks(job, progress),
            allow_partial=job.allow_partial,
        )
    except RunDirectoryRemoved:
        raise  # `run.json` would make the directory again.
    except BaseException as error:
        # The error is what counts; the disk may be full, or gone.
        with contextlib.suppress(OSError):
            record.finish(f"{type(error).__name__}: {error}")
        raise
    results = _results(job, progress, model, logs, time.monotonic() - start)
    if job.mode in TRAINING and job.writes:
        _write_gin(job.model_dir)
    record.finish(
        "done",
        step=results.step,
        metrics=results.metrics,
        weights=results.fingerprint,
        inexact=results.inexact,
        non_finite=results.non_finite,
    )
    return results


@contextlib.contextmanager
def _servers_dismissed(job: Job) -> Iterator[None]:
    """Lets the servers of a cluster go at the end; not after a loss: the chief comes back then."""
    runtime = job.config.runtime
    if not runtime.traits.is_asynchronous or runtime.remote_cluster:
        yield
        return
    host = Host(job.model_dir)
    host.begin()
    try:
        yield
    except MemberLost:
        raise
    except BaseException as error:
        host.end(getattr(error, "exit_code", 1))
        raise
    host.end(0)


def _callbacks(job: Job, progress: Callback) -> list[Callback]:
    if job.mode in TRAINING and job.writes:
        return [progress, job.data, ConfigWriter(job.model_dir, job.resolved)]
    return [progress]


def _record(job: Job, strategy: Any) -> Any:
    from orbit_runner.reporting.run_record import RunRecord, describe_devices

    record = RunRecord(
        RunDirectory(job.model_dir).record(job.mode) if job.writes else None,
        ["runner", *sys.argv[1:]],
        job.mode,
        job.config.runtime.seed,
        note,
    )
    devices, replicas = describe_devices(), strategy.num_replicas_in_sync
    cluster = {"cluster": job.cluster.as_dict()} if job.cluster else {}
    record.update(devices=devices, replicas=replicas, **cluster)
    note(_placement(job, strategy))
    return record


def _placement(job: Job, strategy: Any) -> str:
    """Words where this process runs: the strategy, its devices, the members of the cluster."""
    from orbit_runner.distribute.devices import local_devices

    runtime = job.config.runtime
    devices = ", ".join(local_devices(strategy))
    together = f"{strategy.num_replicas_in_sync} in sync"
    if runtime.traits.is_asynchronous:
        together = "workers at their own pace"
    lines = [f"{runtime.distribution_strategy}: {together}, here {devices}"]
    if job.cluster is not None:
        cluster = job.cluster
        lines[0] = f"{cluster.me} of a cluster ({cluster.source}), {lines[0]}"
        lines += [f"  {member}  {member.address}" for member in cluster.members()]
    return "\n".join(lines)


class ConfigWriter(Callback):
    """Writes the config that makes this run again, once the run has a state that fits it."""

    def __init__(self, model_dir: Path, resolved: Resolved) -> None:
        """Writes nothing yet.

        Args:
            model_dir: The folder of the run.
            resolved: The config.
        """
        self._path, self._config = RunDirectory(model_dir).config, resolved.config
        self._written = False

    def on_run_begin(self, run: Any) -> None:
        """Writes it, the first time: a run that goes back after it diverged is the same run."""
        if self._written:
            return
        from orbit_runner.run_directory.config import keep_config
        from orbit_runner.utils.files import write_whole

        keep_config(self._path.parent, self._config)
        command = shlex.join(["runner", *sys.argv[1:]])
        write_whole(self._path, f"# Made by: {command}\n{to_yaml(self._config)}")
        self._written = True


def _write_gin(model_dir: Path) -> None:
    import gin

    from orbit_runner.utils.files import write_whole

    write_whole(model_dir / "operative_config.gin", gin.operative_config_str())


def _best_result(path: Path) -> dict[str, Any]:
    from orbit_runner.utils.files import read_json_object

    try:
        return read_json_object(path)
    except (OSError, ValueError):
        return {}  # None yet, or it was removed or damaged meanwhile.


def _results(job: Job, history: Any, model: Any, logs: dict[str, Any], seconds: float) -> Any:
    from orbit_runner.checkpoint.fingerprint import weights_fingerprint
    from orbit_runner.checkpoint.finite_check import describe_non_finite, non_finite_variables
    from orbit_runner.reporting.progress import scalars
    from orbit_runner.reporting.results import Results
    from orbit_runner.train.callbacks.summaries import flat_scalars

    config, model_dir = job.config, job.model_dir
    subdir = config.trainer.best_checkpoint_export_subdir
    best = _best_result(model_dir / subdir / "info.json") if subdir else {}
    metrics = scalars(flat_scalars(logs))
    curves = {
        name: [result.get(name, float("nan")) for _, result in history.evaluations]
        for name in metrics
    }
    return Results(
        experiment=config.name,
        mode=job.mode,
        step=history.last_step,
        seconds=seconds,
        steps_per_second=history.steps_per_second[-1] if history.steps_per_second else None,
        parameters=sum(variable.shape.num_elements() for variable in model.trainable_variables),
        metrics=metrics,
        best=best,
        best_metric=config.trainer.best_checkpoint_eval_metric,
        history=curves,
        fingerprint=weights_fingerprint(model),
        model_dir=str(model_dir),
        inexact=history.inexact,
        tflops_per_second=history.work.get("tflops_per_second"),
        mfu=history.work.get("mfu"),
        non_finite=describe_non_finite(non_finite_variables(model.trainable_variables)),
    )
