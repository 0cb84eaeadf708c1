"""`--mode=continuous_train_and_eval`: fine-tunes from each checkpoint that another run writes.

Each fine-tuning is a separate run with its own process and run directory (`MODEL_DIR/from-STEP`),
so an interrupted one resumes where it stopped. Does not import TensorFlow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from orbit_runner.cli.command import normalize_spelling
from orbit_runner.cli.flags.config_flags import build_request, refuse_streams
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import ResolvedConfig, resolve
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.storage.paths import local_path
from orbit_runner.utils.files import read_file, write_atomically
from orbit_runner.utils.signals import exit_signals

MODE = "continuous_train_and_eval"
_POLL_SECONDS = 1.0
# Flags that child processes get with a different value.
_REPLACED_FLAGS = ("mode", "model_dir", "pretrain_steps", "json")
_INIT_CHECKPOINT = "task.init_checkpoint"
_LATEST_PATH = re.compile(r'^model_checkpoint_path: "(.*)"$', re.MULTILINE)


def main(arguments: Sequence[str], flags: argparse.Namespace) -> int:
    """Fine-tunes from each new checkpoint until the other run ends.

    Returns 0, or the exit code of a run that failed. `arguments` are those after `run`;
    `flags` are the parsed arguments.
    """
    refuse_streams(flags, "each fine-tuning run reads it")
    resolved = resolve(build_request(flags))
    watched = _watched_directory(resolved)
    if not flags.model_dir:
        raise RunnerError(
            f"--model_dir: is not set; --mode={MODE} requires it, to create a run directory in it "
            "for each checkpoint"
        )
    model_dir = local_path(flags.model_dir, f"--model_dir with --mode={MODE}")
    run_flags = _run_flags(arguments)
    timeout = resolved.config.trainer.continuous_eval_timeout
    for step, path in checkpoints_iterator(watched, timeout, flags.pretrain_steps):
        results = model_dir / f"metrics-{step}.json"
        if results.exists():
            continue
        print(f"fine-tuning from {path}", file=sys.stderr)
        code, text = run_child(
            [
                "run",
                *run_flags,
                f"--model_dir={model_dir}/from-{step}",
                f"--{_INIT_CHECKPOINT}={path}",
            ]
        )
        if code:
            return code
        found = json.loads(text)
        if found.get("stopped"):
            return 0  # By `trainer.max_time`; the same command continues this fine-tuning.
        write_atomically(results, json.dumps(found["metrics"], indent=2) + "\n")
    return 0


def _watched_directory(resolved: ResolvedConfig) -> Path:
    path = resolved.config.task.init_checkpoint
    origin = resolved.origin(_INIT_CHECKPOINT)
    if not path:
        message = f"is not set; --mode={MODE} requires the directory of another run"
        raise ConfigError([Problem(_INIT_CHECKPOINT, message, origin)])
    if "://" in path or Path(f"{path}.index").exists():
        message = f"got {path!r}, expected a local directory, not a single checkpoint"
        raise ConfigError([Problem(_INIT_CHECKPOINT, message, origin)])
    return Path(path).expanduser()


def checkpoints_iterator(
    folder: Path,
    timeout: float | None,
    last_step: int | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[int, Path]]:
    """Yields (step, path without suffix) of the newest checkpoint, each time that it changes.

    The directory need not exist yet. Ends once `last_step` is reached; if that is None, after
    `timeout` seconds without a new checkpoint. If `timeout` is None, never stops waiting.
    """
    seen, step, since = None, -1, clock()
    while True:
        newest = newest_checkpoint(folder)
        if newest is not None and newest != seen:
            seen, step = newest, _step_of(newest)
            yield step, newest
            since = clock()
            continue
        if last_step and step >= last_step:
            return
        if timeout is not None and clock() - since > timeout:
            if not last_step:
                return
            print(
                f"step {step} of {last_step}: still waiting for checkpoints in {folder}",
                file=sys.stderr,
            )
            since = clock()
        sleep(_POLL_SECONDS)


def newest_checkpoint(folder: Path) -> Path | None:
    """Returns the newest complete checkpoint, without suffix, or None.

    `folder` is a run directory of this runner or of Model Garden, or a directory of checkpoints.
    """
    for place in (folder, RunDirectory(folder).checkpoints):
        with contextlib.suppress(OSError):
            found = _LATEST_PATH.search(read_file(place / "checkpoint").decode())
            path = place / found[1] if found else place
            if found and Path(f"{path}.index").exists():
                return path
    return None


def _step_of(path: Path) -> int:
    number = path.name.rpartition("-")[2]
    if not number.isdigit():
        raise RunnerError(f"{path}: expected a checkpoint whose name ends with -STEP")
    return int(number)


def _run_flags(arguments: Sequence[str]) -> list[str]:
    from orbit_runner.cli.commands.run import COMMAND  # Avoids a circular import.

    found = ["--mode=train_and_eval", "--json"]
    rest = normalize_spelling(COMMAND.parser(), arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, _ = argument.removeprefix("--").partition("=")
        if argument.startswith("--") and name in _REPLACED_FLAGS:
            if not equals and name != "json" and rest:
                rest.pop(0)
            continue
        found.append(argument)
    return found


def run_child(arguments: Sequence[str]) -> tuple[int, str]:
    """Runs a command of the runner in a child process. Returns its exit code and standard output.

    Signals are forwarded to it. `arguments` are those after `runner`.
    """
    # In a separate session, the child receives Ctrl-C only once, from this process. A second one
    # would keep it from saving.
    child = subprocess.Popen(
        [sys.executable, "-m", "orbit_runner", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def forward_signal(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    before = {n: signal.signal(n, forward_signal) for n in exit_signals()}
    try:
        text, _ = child.communicate()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    code = child.returncode
    return (128 - code if code < 0 else code), text
