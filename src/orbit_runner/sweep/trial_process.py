"""A process that trains the trials of a sweep, one after another.

Importing TensorFlow takes longer than training a small trial. So a process that has trained one
gets the next, if it needs the same settings of the runtime and the same environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from orbit_runner.errors import RunnerError
from orbit_runner.launch.supervisor import parent_death_hook
from orbit_runner.run_directory.run_lock import release_all

# TensorFlow and Keras keep some memory of each trial.
_MOST_TRIALS = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialCommand:
    """How to train a trial up to a step.

    Attributes:
        arguments: The arguments of `runner`, such as `("run", "--experiment=digits", …)`.
        environ: The complete environment.
        cores: The cores that the process may use; empty for all.
        log: The file to which its output is appended.
        runtime: The settings of the runtime that the sweep varies. TensorFlow reads them once.
    """

    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    cores: tuple[int, ...]
    log: Path
    runtime: Mapping[str, object] = dataclasses.field(default_factory=dict)


class TrialProcess:
    """A process that trains a trial, and others after it.

    It has a session of its own, so that Ctrl-C reaches only the sweep, and is killed when the
    thread ends that started it. Raises RunnerError if it cannot be started.
    """

    def __init__(self, command: TrialCommand) -> None:
        try:
            command.log.parent.mkdir(parents=True, exist_ok=True)
            self._answers, answers = os.pipe()
            with command.log.open("ab") as log:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(answers)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=dict(command.environ),
                    start_new_session=True,
                    pass_fds=[answers],
                    preexec_fn=_prepare(os.getpid(), command.cores),
                )
            os.close(answers)
        except OSError as error:
            raise RunnerError(f"cannot start a trial: {error}", code="failed-trial") from error
        self._first = command
        self._code: int | None = 0  # of the last trial; None while it runs
        self.trials = 0
        self.train(command)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def can_train(self, command: TrialCommand) -> bool:
        """Returns whether the process is free and has the state that the trial needs."""
        first = self._first
        return (
            (first.environ, first.cores, first.runtime)
            == (command.environ, command.cores, command.runtime)
            and self._code == 0
            and self.trials < _MOST_TRIALS
            and self._child.poll() is None
        )

    def train(self, command: TrialCommand) -> None:
        """Begins a trial."""
        assert self._child.stdin is not None
        request = json.dumps({"arguments": command.arguments, "log": str(command.log.resolve())})
        self._code = None
        self.trials += 1
        with contextlib.suppress(BrokenPipeError):  # `poll` tells how it ended.
            self._child.stdin.write(f"{request}\n".encode())
            self._child.stdin.flush()

    def poll(self) -> int | None:
        """Returns the exit code of the trial, negative for a signal; None while it runs."""
        if self._code is None:
            is_answered = select.select([self._answers], [], [], 0)[0]
            # The process ends after a trial whose exit code is not 0.
            trained = os.read(self._answers, 1) if is_answered else b""
            self._code = 0 if trained else self._child.poll()
        return self._code

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)

    def kill(self) -> None:
        """Kills the process, and waits for its end."""
        # What a process that had ended did not read is still in the buffer.
        with contextlib.suppress(BrokenPipeError), self._child:
            self._child.kill()
        os.close(self._answers)


def _prepare(parent: int, cores: tuple[int, ...]) -> Callable[[], None]:
    """Returns a `preexec_fn` that ends the trial with its parent and limits its cores."""
    dies = parent_death_hook(parent)

    def prepare() -> None:
        if dies is not None:
            dies()
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)

    return prepare


def _train_trials() -> None:
    """Trains the trials that arrive on standard input, until one ends with another code than 0."""
    requests, answers = os.fdopen(os.dup(0)), int(sys.argv[1])
    os.set_inheritable(answers, False)  # Processes of a trial may outlive it.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    # Not an `import`, because the command line is a layer above.
    main = importlib.import_module("orbit_runner.cli.main")
    for line in requests:
        request = json.loads(line)
        with open(request["log"], "ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        sys.argv[:] = ["runner", *request["arguments"]]
        sys.orig_argv[:] = [sys.executable, "-m", "orbit_runner", *request["arguments"]]
        if code := main.run_command():
            main.exit_process(code)
        sys.stdout.flush()
        sys.stderr.flush()
        release_all()  # `runner run` leaves this to the end of the process.
        gc.unfreeze()
        gc.collect()  # What the run froze is garbage now.
        os.write(answers, b"0")
    main.exit_process(0)


if __name__ == "__main__":
    _train_trials()
