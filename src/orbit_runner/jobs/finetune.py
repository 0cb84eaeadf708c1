"""Fine-tunes from each checkpoint that another run writes: `--mode=continuous_train_and_eval`.

Each fine-tuning is a separate run with its own process and run directory (`MODEL_DIR/from-STEP`),
so an interrupted one resumes where it stopped. Does not import TensorFlow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orbit_runner.checkpoint.directory import listed_names
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.modes import FINE_TUNING
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import write_atomically
from orbit_runner.utils.log import note
from orbit_runner.utils.signals import run_child

_POLL_SECONDS = 1.0
_INIT_CHECKPOINT = "task.init_checkpoint"


def watched_directory(resolved: ResolvedConfig) -> Path:
    """Returns the directory of the other run; raises `ConfigError` if the config names none."""
    path = resolved.config.task.init_checkpoint
    origin = resolved.origin(_INIT_CHECKPOINT)
    if not path or "://" in path or Path(f"{path}.index").exists():
        message = f"got {path!r}; --mode={FINE_TUNING} requires the local directory of another run"
        raise ConfigError([Problem(_INIT_CHECKPOINT, message, origin, code="no-checkpoint")])
    return Path(path).expanduser()


def fine_tune_continuously(
    watched: Path,
    model_dir: Path,
    arguments: Sequence[str],
    *,
    timeout: float | None,
    last_step: int | None,
) -> int:
    """Fine-tunes from each new checkpoint until the other run ends.

    Args:
        watched: The directory of the other run.
        model_dir: The directory that gets a run directory for each checkpoint.
        arguments: The arguments of `runner run` for each fine-tuning.
        timeout: How many seconds to wait for a checkpoint; None: without limit.
        last_step: The last step of the other run, if it is known.

    Returns:
        0, or the exit code of a run that failed.
    """
    for step, path in checkpoints_iterator(watched, timeout, last_step):
        results_file = model_dir / f"metrics-{step}.json"
        if results_file.exists():
            continue
        note(f"fine-tuning from {path}")
        code, text = run_child(
            [
                "run",
                *arguments,
                f"--model_dir={model_dir}/from-{step}",
                f"--{_INIT_CHECKPOINT}={path}",
            ]
        )
        if code:
            return code
        metrics = json.loads(text)["metrics"]
        write_atomically(results_file, json.dumps(metrics, indent=2) + "\n")
    return 0


def checkpoints_iterator(
    directory: Path,
    timeout: float | None,
    last_step: int | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[int, Path]]:
    """Yields (step, path without suffix) of the newest checkpoint, each time that it changes.

    The directory need not exist yet. Ends once `last_step` is reached; if that is None, after
    `timeout` seconds without a new checkpoint. If `timeout` is None, never stops waiting.
    """
    seen = None
    step = -1
    since = clock()
    while not (last_step and step >= last_step):
        newest = newest_checkpoint(directory)
        if newest is not None and newest != seen:
            seen = newest
            step = _step_of(newest)
            yield step, newest
            since = clock()
        elif timeout is not None and not last_step and clock() - since > timeout:
            return
        else:
            sleep(_POLL_SECONDS)


def newest_checkpoint(directory: Path) -> Path | None:
    """Returns the newest complete checkpoint, without suffix, or None.

    `directory` is a run directory, or a directory of checkpoints, such as a run of Model Garden.
    """
    for place in (directory, RunDirectory(directory).checkpoints):
        for name in listed_names(place)[:1]:
            if Path(f"{place / name}.index").exists():
                return place / name
    return None


def _step_of(path: Path) -> int:
    number = path.name.rpartition("-")[2]
    if not number.isdigit():
        raise RunnerError(
            f"{path}: expected a checkpoint whose name ends with -STEP", code="no-checkpoint"
        )
    return int(number)
