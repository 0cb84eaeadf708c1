"""`runner run`: from the command line to a trained model."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbit_runner.cli.flags import add_config_flags, parse, parser, request
from orbit_runner.cli.preflight import blamed, check_before_start, check_same_config
from orbit_runner.config.dump import to_yaml
from orbit_runner.config.modes import MODES, TRAINING
from orbit_runner.config.resolve import Resolved, resolve
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.training.observer import Observer, Observers
from orbit_runner.training.run_lock import RunLock

_DESCRIPTION = """\
Train, evaluate, or both.

A run keeps everything in its folder (--model_dir, or runs/NAME/TIME); started again on the same
folder it goes on from the last checkpoint. Ctrl-C saves and leaves."""


def main(arguments: Sequence[str]) -> int:
    """Runs an experiment.

    Args:
        arguments: The arguments after `run`.

    Returns:
        0.

    Raises:
        RunnerError: The experiment cannot run as it is written, diverged, or was interrupted.
    """
    flags = parse(_parser(), arguments)
    resolved = resolve(request(flags))
    model_dir = _model_dir(flags, resolved)
    check_before_start(resolved, flags.mode, model_dir)
    if flags.mode in TRAINING:
        _hold(model_dir)
        if flags.resume == "same":
            check_same_config(resolved, model_dir)
    return _run(resolved, flags, model_dir)


def _parser() -> argparse.ArgumentParser:
    to = parser("run", _DESCRIPTION)
    to.add_argument("--mode", default="train_and_eval", metavar="MODE", help=", ".join(MODES))
    to.add_argument("--model_dir", metavar="DIR", help="the folder of the run")
    to.add_argument(
        "--resume",
        choices=("same", "override"),
        default="same",
        help="override: go on in a folder whose config was another one",
    )
    to.add_argument(
        "--enable_async_checkpointing",
        nargs="?",
        const="true",
        default="true",
        choices=("true", "false"),
        help="save checkpoints beside training (the default); false: training waits for them",
    )
    to.add_argument(
        "--allow_partial",
        action="store_true",
        help="restore what fits, for surgery on checkpoints",
    )
    to.add_argument("--progress", choices=("auto", "bar", "plain"), default="auto")
    to.add_argument("--json", action="store_true", help="print the results as JSON")
    add_config_flags(to)
    return to


def _model_dir(flags: argparse.Namespace, resolved: Resolved) -> Path:
    if flags.model_dir:
        return Path(flags.model_dir)
    return Path("runs") / (resolved.config.name or "run") / time.strftime("%Y%m%d-%H%M%S")


def _hold(model_dir: Path) -> None:
    # Never given back: threads that save may write to the folder until the process ends.
    lock = RunLock(model_dir)
    lock.acquire()
    if lock.note:
        print(lock.note, file=sys.stderr)


def _run(resolved: Resolved, flags: argparse.Namespace, model_dir: Path) -> int:
    from orbit_runner.reporting.progress import make_progress
    from orbit_runner.reporting.results import print_results
    from orbit_runner.runtime.environment import prepare_environment

    config = resolved.config
    progress = make_progress(flags.progress)
    with progress.shown():
        progress.phase("importing tensorflow")
        prepare_environment(config.runtime)
        with blamed(resolved):
            results = _experiment(resolved, flags, model_dir, progress)
    if flags.json:
        print(json.dumps(results.as_dict(), indent=2, allow_nan=False))
    else:
        print_results(results)
    return 0


def _experiment(
    resolved: Resolved, flags: argparse.Namespace, model_dir: Path, progress: Any
) -> Any:
    from orbit_runner import train_lib
    from orbit_runner.reporting.run_record import RunRecord, describe_devices

    config, mode = resolved.config, flags.mode
    bind_gin(config.gin_bindings)
    strategy, task = train_lib.prepare(config, str(model_dir))
    record = RunRecord(
        _record_path(model_dir, mode), ["runner", *sys.argv[1:]], mode, config.runtime.seed
    )
    record.update(devices=describe_devices(), replicas=strategy.num_replicas_in_sync)
    config_writer = ConfigWriter(model_dir, resolved)
    start = time.monotonic()
    try:
        model, logs = train_lib.run_experiment(
            strategy,
            task,
            mode,
            config,
            str(model_dir),
            enable_async_checkpointing=flags.enable_async_checkpointing == "true",
            observer=Observers(progress, config_writer) if mode in TRAINING else progress,
            allow_partial=flags.allow_partial,
        )
    except BaseException as error:
        record.finish(f"{type(error).__name__}: {error}")
        raise
    results = _results(resolved, mode, model_dir, progress, model, logs, time.monotonic() - start)
    _write_gin(model_dir, mode)
    record.finish(
        "done",
        step=results.step,
        metrics=results.metrics,
        weights=results.fingerprint,
        inexact=results.inexact,
    )
    return results


def _record_path(model_dir: Path, mode: str) -> Path:
    # An evaluation may run beside training in the same folder, so it has a record of its own.
    return model_dir / ("run.json" if mode in TRAINING else f"run.{mode}.json")


class ConfigWriter(Observer):
    """Writes the config that makes this run again, once the run has a state that fits it."""

    def __init__(self, model_dir: Path, resolved: Resolved) -> None:
        """Writes nothing yet.

        Args:
            model_dir: The folder of the run.
            resolved: The config.
        """
        self._path, self._config = model_dir / "config.yaml", resolved.config
        self._written = False

    def ready(self, step: int) -> None:
        """Writes it, the first time: a run that goes back after it diverged is the same run."""
        if self._written:
            return
        from orbit_runner.training.files import write_whole

        command = shlex.join(["runner", *sys.argv[1:]])
        write_whole(self._path, f"# Made by: {command}\n{to_yaml(self._config)}")
        self._written = True


def bind_gin(statements: Sequence[str]) -> None:
    """Hands gin statements to gin.

    Args:
        statements: Imports and bindings.

    Raises:
        RunnerError: Gin does not take them.
    """
    if not statements:
        return
    import gin

    try:
        gin.parse_config("\n".join(statements))
    except Exception as error:
        raise RunnerError(f"gin bindings: {first_line(error)}") from error


def _write_gin(model_dir: Path, mode: str) -> None:
    import gin

    from orbit_runner.training.files import write_whole

    if mode in TRAINING:
        write_whole(model_dir / "operative_config.gin", gin.operative_config_str())


def _results(
    resolved: Resolved,
    mode: str,
    model_dir: Path,
    history: Any,
    model: Any,
    logs: dict[str, Any],
    seconds: float,
) -> Any:
    from orbit_runner.reporting.progress import scalars
    from orbit_runner.reporting.results import Results
    from orbit_runner.training.fingerprint import weights_fingerprint

    subdir = resolved.config.trainer.best_checkpoint_export_subdir
    info = model_dir / subdir / "info.json"
    best = json.loads(info.read_text(encoding="utf-8")) if subdir and info.exists() else {}
    metrics = scalars(logs)
    curves = {
        name: [result.get(name, float("nan")) for _, result in history.evaluations]
        for name in metrics
    }
    return Results(
        experiment=resolved.config.name,
        mode=mode,
        step=history.last_step,
        seconds=seconds,
        steps_per_second=history.steps_per_second[-1] if history.steps_per_second else None,
        parameters=sum(variable.shape.num_elements() for variable in model.trainable_variables),
        metrics=metrics,
        best=best,
        best_metric=resolved.config.trainer.best_checkpoint_eval_metric,
        history=curves,
        fingerprint=weights_fingerprint(model),
        model_dir=str(model_dir),
        inexact=history.inexact,
    )
