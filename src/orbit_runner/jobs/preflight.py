"""Checks that do not need TensorFlow: files, directories, batch sizes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, list_checkpoints
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.example_ids import EXCLUDE
from orbit_runner.config.fingerprint import (
    can_affect_weights,
    excludes_same_examples,
    is_data_location,
)
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schedule_length import follow_run, follow_same_run
from orbit_runner.config.schema.modes import FINE_TUNING, MODES, TRAINING
from orbit_runner.config.schema.partitioning import batch_problems, run_problems
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS
from orbit_runner.config.serialize import differences
from orbit_runner.determinism.portable import set_portable_variables
from orbit_runner.distribute.cluster.addresses import port_problem
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.distribute.cluster.resolver import resolve_cluster
from orbit_runner.errors import RunnerError, SettingError, unknown_name_message
from orbit_runner.run_directory.data_record import find_record
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
    if mode == "eval" and not config.task.init_checkpoint:
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


def _checkpoint_faults(model_dir: Path) -> Iterator[tuple[str, str]]:
    # Model Garden saves checkpoints in the run directory itself.
    places = (RunDirectory(model_dir).checkpoints, model_dir)
    if not any((place / "checkpoint").exists() for place in places):
        yield (
            f"no checkpoint found in {model_dir / 'checkpoints'} or {model_dir}\n"
            "train first (--mode=train), or specify an existing run directory",
            "no-checkpoint",
        )


def check_same_config(resolved: ResolvedConfig, model_dir: Path) -> None:
    """Raises an error if a directory contains a run with a config that gives other weights.

    Raises `ConfigError` if the number of logical replicas differs.
    """
    saved_config = RunDirectory(model_dir).config
    checkpoints = checkpoints_of(model_dir)
    # If a run failed before its first checkpoint, another config can do no harm. The checkpoints
    # include those in the run directory itself, where Model Garden and trainers named by gin save.
    # Without config.yaml, the config is compared with that of the checkpoint when it is restored.
    if not list_checkpoints(checkpoints) or not saved_config.is_file():
        return
    before = resolve(Request(experiment=str(saved_config))).config
    if before.trainer.train_steps:
        before = follow_run(before, before.trainer.train_steps)
    now = follow_same_run(resolved.config, before)
    was = before.runtime.logical_replicas
    logical = now.runtime.logical_replicas
    if was != logical:
        message = (
            f"got {logical}, but {model_dir} contains a run with {was}\n"
            f"allowed: {was}; or use another --model_dir"
        )
        origin = resolved.origin(LOGICAL_REPLICAS)
        raise ConfigError([Problem(LOGICAL_REPLICAS, message, origin, code="other-config")])
    # Without a data record, it is unknown whether another directory contains the same data.
    records_data = find_record(model_dir) is not None
    changed = [
        change
        for change in differences(before, now)
        if can_affect_weights(change.path, before)
        or can_affect_weights(change.path, now)
        or (is_data_location(change.path, now) and not records_data)
    ]
    if excludes_same_examples(before, now):
        changed = [change for change in changed if change.path != EXCLUDE]
    if not changed:
        return
    lines = [
        f"{model_dir} contains a run with a different config:",
        *(f"  {change.path}: {change.left} → {change.right}" for change in changed[:12]),
        "use another --model_dir, or --resume=override to resume with the new config",
    ]
    raise RunnerError("\n".join(lines), code="other-config")


@contextlib.contextmanager
def setting_error_scope(resolved: ResolvedConfig) -> Iterator[None]:
    """Turns a `SettingError` into a `ConfigError` that names the origin of the setting."""
    try:
        yield
    except SettingError as error:
        problem = Problem(error.path, error.reason, resolved.origin(error.path), code=error.code)
        raise ConfigError([problem]) from error
