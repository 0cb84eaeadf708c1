"""Checks that do not need TensorFlow: files, directories, batch sizes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, foreign_checkpoints_reason
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.modes import FINE_TUNING, MODES, TRAINING
from orbit_runner.config.schema.partitioning import batch_problems, run_problems
from orbit_runner.determinism.portable import set_portable_variables
from orbit_runner.distribute.cluster.addresses import port_problem
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.distribute.cluster.resolver import resolve_cluster
from orbit_runner.errors import SettingError, unknown_name_message
from orbit_runner.run_directory.config import check_same_settings
from orbit_runner.run_directory.data_record import DataRecord, fingerprint_of
from orbit_runner.run_directory.paths import RunDirectory, unsuitable_directory_reason
from orbit_runner.storage.staging import localize


def check_before_start(
    resolved: ResolvedConfig,
    mode: str,
    model_dir: Path,
    environ: Mapping[str, str] = os.environ,
    *,
    alone: bool = False,
) -> Cluster | None:
    """Checks a run before TensorFlow is imported, so that mistakes are reported at once.

    `environ` may describe a cluster; with `alone`, it is not read. Returns the cluster that this
    process is a member of, or None. Raises `ConfigError`, or `ClusterError` if the description of
    the cluster is wrong.
    """
    config = resolved.config
    with setting_error_scope(resolved):
        # First, because the code of a task may import TensorFlow, such as a function of its data.
        set_portable_variables(config.runtime)
    cluster = None if alone else resolve_cluster(config.runtime, environ)
    problems: list[Problem] = []
    if mode not in MODES:
        message = unknown_name_message("mode", mode, [*MODES, FINE_TUNING])
        problems.append(Problem("--mode", message, code="not-allowed"))
    faults = [*_directory_faults(model_dir)]
    if mode == "eval" and not faults and not config.task.init_checkpoint:
        faults += _checkpoint_faults(model_dir)
    problems += [Problem("--model_dir", message, code=code) for message, code in faults]
    replicas = config.runtime.num_replicas(len(cluster.trainers()) if cluster else 1)
    if replicas:  # None: known only from the devices; 0: too few, reported below
        problems += resolved.locate(batch_problems(config, replicas, mode))
    problems += resolved.locate(run_problems(config, mode))
    with setting_error_scope(resolved):
        local = localize(config)
    problems += resolved.locate(local.preflight(mode))
    if mode in TRAINING:
        problems += resolved.locate(config.trainer.length_problems())
    if cluster and cluster.me.address and (problem := port_problem(cluster.me.address)):
        text = f"{cluster.source}: {cluster.me}: {problem}"
        problems.append(Problem("cluster", text, code="unreachable"))
    if problems:
        raise ConfigError(problems)
    return cluster


def check_evaluation(resolved: ResolvedConfig, run: Path) -> None:
    """Checks the data of an evaluation in this process before TensorFlow is imported.

    What a run learned from its training data is in its assets, so that they need not be there.
    Raises `ConfigError`.
    """
    config = resolved.config
    with setting_error_scope(resolved):
        set_portable_variables(config.runtime)
        local = localize(config)
    problems = [
        problem
        for problem in resolved.locate((*local.preflight("eval"), *run_problems(config, "eval")))
        if not (problem.path.startswith("task.train_data.") and RunDirectory(run).assets.is_dir())
    ]
    if problems:
        raise ConfigError(problems)


def _directory_faults(model_dir: Path) -> Iterator[tuple[str, str]]:
    """Yields why a run cannot use a directory, each with a code."""
    if os.path.lexists(model_dir) and not os.path.isdir(model_dir):
        kind = "a file" if os.path.isfile(model_dir) else "no directory"
        yield f"{model_dir} is {kind}, expected a directory", "wrong-file-type"
        return
    if unsuitable := unsuitable_directory_reason(model_dir):
        yield unsuitable, "bad-path"
        return
    checkpoints = RunDirectory(model_dir).checkpoints
    if os.path.lexists(checkpoints) and not os.path.isdir(checkpoints):
        yield f"{checkpoints} is not a directory; rename or delete it", "wrong-file-type"
    # Not `Path.exists`, which raises an error below a directory without search permission.
    existing = next(f for f in (model_dir, *model_dir.absolute().parents) if os.path.exists(f))
    try:
        # Tries to write, because permission bits do not cover root, ACLs and read-only mounts.
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        yield f"cannot write to {existing}: {error.strerror}", "not-writable"
        return
    if os.path.isdir(model_dir) and (reason := foreign_checkpoints_reason(model_dir)):
        yield reason, "not-a-run"


def _checkpoint_faults(model_dir: Path) -> Iterator[tuple[str, str]]:
    checkpoints = RunDirectory(model_dir).checkpoints
    if not (checkpoints / "checkpoint").exists():
        yield (
            f"no checkpoint found in {checkpoints}\n"
            "train first (--mode=train), or specify an existing run directory",
            "no-checkpoint",
        )


def check_same_config(resolved: ResolvedConfig, model_dir: Path) -> None:
    """Raises an error if a directory contains a run with a config that gives other weights.

    Raises `ConfigError` if the number of logical replicas differs.
    """
    # If a run failed before its first checkpoint, another config can do no harm.
    # Without config.yaml, the config is compared with that of the checkpoint when it is restored.
    if checkpoints_of(model_dir).committed_steps() and RunDirectory(model_dir).config.is_file():
        with setting_error_scope(resolved):
            check_same_settings(model_dir, resolved.config)


def compare_data(resolved: ResolvedConfig, run: Path) -> DataRecord:
    """Returns the record of the data that a config names, compared with that of a run.

    Raises `DataError` if a file cannot be read, `ConfigError` if a setting names no file.
    """
    with setting_error_scope(resolved):
        return DataRecord(run, fingerprint_of(localize(resolved.config).task))


@contextlib.contextmanager
def setting_error_scope(resolved: ResolvedConfig) -> Iterator[None]:
    """Turns a `SettingError` into a `ConfigError` that names the origin of the setting."""
    try:
        yield
    except SettingError as error:
        problem = Problem(error.path, error.reason, resolved.origin(error.path), code=error.code)
        raise ConfigError([problem]) from error
