"""Starts the trials of a sweep: in new processes, or as forks of a server that has TensorFlow.

The server is the forkserver of `multiprocessing`. Forking is safe only before TensorFlow has
started: its threads would be missing in the trial. So the server imports, but creates nothing, and
runs no thread but its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute import tf_environment
from orbit_runner.errors import RunnerError
from orbit_runner.launch.process import parent_death_hook
from orbit_runner.utils.log import note


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialCommand:
    """How to train a trial up to a step.

    Attributes:
        arguments: The arguments of `runner`, such as `("run", "--experiment=digits", …)`.
        environ: The complete environment.
        cores: The cores that the process may use; empty for all.
        log: The file to which its output is appended.
    """

    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    cores: tuple[int, ...]
    log: Path


class TrialProcess(Protocol):
    """A process that trains. It ends when the process that started it ends."""

    @property
    def pid(self) -> int:
        """The process id."""

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while the process runs."""

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""


class TrialLauncher(Protocol):
    """Starts processes that train."""

    def start(self, command: TrialCommand) -> TrialProcess:
        """Starts a process."""

    def close(self) -> None:
        """Ends the processes that the launcher keeps between trials."""


class ColdProcess:
    """A trial in a process and a session of its own, so that Ctrl-C reaches only the sweep."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while the process runs."""
        return self._child.poll()

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)


class ColdLauncher:
    """Starts trials with `python -m orbit_runner`.

    `start` must be called in the main thread: on Linux, a trial is killed when the thread that
    started it ends.
    """

    def start(self, command: TrialCommand) -> ColdProcess:
        """Starts a trial. Raises `RunnerError` if the log or the program cannot be opened."""
        try:
            command.log.parent.mkdir(parents=True, exist_ok=True)
            with command.log.open("ab") as log:
                child = subprocess.Popen(
                    [sys.executable, "-m", "orbit_runner", *command.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(command.environ),
                    start_new_session=True,
                    preexec_fn=_prepare(os.getpid(), command.cores),
                )
        except OSError as error:
            raise RunnerError(f"cannot start a trial: {error}", code="failed-trial") from error
        return ColdProcess(child)

    def close(self) -> None:
        """Does nothing, because no process runs between trials."""


def _prepare(parent: int, cores: tuple[int, ...]) -> Callable[[], None]:
    """Returns a `preexec_fn` that ends the trial with its parent and limits its cores."""
    dies = parent_death_hook(parent)

    def prepare() -> None:
        if dies is not None:
            dies()
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)

    return prepare


# The environment variable with the log and the cores of the server.
SERVER_VARIABLE = "ORBIT_RUNNER_FORKSERVER"
# What a run imports, also at its end, and the tasks. None of them starts a thread on import.
_MODULES = (
    *("orbit_runner.train_lib", "orbit_runner.cli.main", "orbit_runner.cli.commands.run"),
    *(f"orbit_runner.models.{name}" for name in ("cnn", "mlp", "resnet_cifar")),
    *(f"orbit_runner.datasets.{name}" for name in ("cifar10", "scikit_learn", "mnist")),
    *(f"orbit_runner.tasks.{name}.task" for name in ("image_classification", "keras", "tabular")),
    *("orbit_runner.tasks.recommendation.task", "orbit_runner.tasks.text_classification.task"),
    *("orbit_runner.tasks.translation.task", "orbit_runner.reporting.progress.factory"),
    *("orbit_runner.reporting.report_collection", "orbit_runner.reporting.results"),
    *("orbit_runner.reporting.run_record", "rich.console", "rich.text"),
)


@dataclasses.dataclass
class _Server:
    """The forkserver after its imports.

    `reason` says why its forks must not train, or is "". `files` are the imported files.
    """

    pid: int
    path: list[str]
    files: Mapping[str, tuple[int, int]]
    reason: str


_server: _Server | None = None


def prepare_server() -> None:
    """Sets up the forkserver before its first fork: imports what a run imports."""
    global _server
    log, cores = json.loads(os.environ.pop(SERVER_VARIABLE))
    # Ctrl-C reaches all processes of a terminal, and Slurm sends SIGTERM to all of a step. The
    # trials need the server until they have saved. They unblock the signal.
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _end_with(os.getppid())  # Otherwise, it would live as long as its trials.
    _redirect_output(Path(log))
    if cores:
        # Before NumPy is imported, which starts a thread per core.
        os.sched_setaffinity(0, cores)
    path = [place or os.getcwd() for place in sys.path]
    try:
        import_modules()
        reason = reason_not_to_fork()
    except Exception as error:  # The forkserver would ignore an `ImportError`.
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}; see {log}"
    # Not `module.__file__`: some modules are only imported when they are asked for a name.
    names = [vars(module).get("__file__") for module in [*sys.modules.values()] if module]
    files = _stamps(name for name in names if isinstance(name, str))
    _server = _Server(os.getpid(), path, files, reason)


def import_modules() -> None:
    """Imports what a run imports, with the environment variables that a run sets."""
    gc.disable()
    environ = dict(os.environ)
    tf_environment.prepare_environment(RuntimeConfig())
    for name in _MODULES:
        importlib.import_module(name)
    tf_environment.set_import_environment(environ)
    gc.freeze()


def reason_not_to_fork() -> str:
    """Returns why forks of this process could hang or fail, or "" if they are safe."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(descriptor).startswith("/dev/nvidia"):
                return "a GPU was used before the fork"
    # OpenBLAS ends its threads before each fork, and starts them when needed.
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    names = sorted(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
    return f"the imported modules started threads: {', '.join(names)}" if len(names) > 1 else ""


def start_trial(command: TrialCommand, answer: Connection) -> None:
    """Answers why this fork of the server must not train, or "" and then runs the command."""
    assert _server is not None
    os.setsid()
    reason = _server.reason
    if changed := dict(_server.files.items() - _stamps(_server.files).items()):
        reason = f"{min(changed)} has changed since it was imported"
    with answer:
        answer.send(reason)
    if not reason:
        multiprocessing.set_start_method(None, force=True)  # Here, it is "forkserver".
        sys.path[:] = _server.path
        run_trial(command, _server.pid)


def run_trial(command: TrialCommand, parent: int) -> None:
    """Runs the command in this forked process and exits.

    `parent` is the process that forked this one. When it dies, this one is killed.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _redirect_output(command.log)
    if command.cores:
        os.sched_setaffinity(0, command.cores)
    run_in_fork(command.arguments, command.environ, parent)


def run_in_fork(arguments: Sequence[str], environ: Mapping[str, str], parent: int) -> None:
    """Resets this forked process to the state of a new one, runs `runner` and exits.

    `parent` is the process that forked this one. When it dies, this one is killed.
    """
    _end_with(parent)
    os.environ.clear()
    os.environ.update(environ)
    random.seed()  # From the operating system: all forks inherit the same states.
    importlib.import_module("numpy").random.seed()
    new_process = [sys.executable, "-m", "orbit_runner", *arguments]
    sys.argv[:] = ["runner", *arguments]
    sys.orig_argv[:] = new_process
    gc.enable()
    try:
        # Not an `import`, because the command line is a layer above.
        importlib.import_module("orbit_runner.cli.main").entry()
    except tf_environment.ImportedTooEarly as error:
        print(f"runner: restarting, because {error}", file=sys.stderr, flush=True)
        os.execve(sys.executable, new_process, dict(environ))


def _stamps(names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Returns the time and size of each file that exists."""
    statuses = {name: os.stat(name) for name in names if os.path.exists(name)}
    return {name: (status.st_mtime_ns, status.st_size) for name, status in statuses.items()}


def _end_with(parent: int) -> None:
    if hook := parent_death_hook(parent):
        hook()


def _redirect_output(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


_PRELOAD = "orbit_runner.sweep.preload"
# `multiprocessing` returns this exit code if the server was killed, and its forks with it.
_SERVER_LOST = 255
_RETRY_SECONDS = 0.2
# Read when a GPU is used first, not when TensorFlow is imported.
_LATE_VARIABLES = ("CUDA_VISIBLE_DEVICES",)


class WarmLauncher:
    """A `TrialLauncher` that forks trials; starts them cold if that is not safe.

    At most one per process, because the server has the environment and the number of cores of the
    first trial. NumPy's matrix products depend on the number of its threads, and so on the cores.

    All methods must be called in one thread that lives as long as the trials: on Linux, they are
    killed when it ends. `root` is the directory of the sweep, whose `logs/forkserver.log` has what
    the server prints. The server ends with this process.
    """

    def __init__(self, root: Path) -> None:
        self._log = (root / "logs" / "forkserver.log").resolve()
        self._cold = ColdLauncher()
        self._trials: list[_ForkedTrial] = []
        self._cores: int | None = None  # their number in a trial
        self._has_warned = False
        self._failure = ""  # why no further trial can be forked
        if not sys.platform.startswith("linux"):
            self._failure = f"forking after TensorFlow was imported is not safe on {sys.platform}"

    def start(self, command: TrialCommand) -> TrialProcess:
        """Starts a trial. The first one waits until the server has imported TensorFlow."""
        process, reason = (None, self._failure) if self._failure else self._fork(command)
        if process is not None:
            trial = _ForkedTrial(process)
            self._trials = [earlier for earlier in self._trials if earlier.poll() is None] + [trial]
            return trial
        if not self._has_warned:
            note(f"warning: each trial imports TensorFlow, which takes time: {reason}")
            self._has_warned = True
        return self._cold.start(command)

    def close(self) -> None:
        """Kills the trials that still run."""
        for trial in self._trials:
            trial.send_signal(signal.SIGKILL)

    def _fork(self, command: TrialCommand) -> tuple[BaseProcess | None, str]:
        """Returns a process that trains, or None and why there is none."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_PRELOAD])
        command = dataclasses.replace(command, environ=dict(command.environ))
        self._cores = len(command.cores) if self._cores is None else self._cores
        if self._cores != len(command.cores) or _early(command.environ) != _early(os.environ):
            return None, "a trial has other environment variables or another number of cores"
        reason = ""
        for _ in range(2):  # A second server replaces one that was killed.
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=start_trial, args=(command, sender))
            try:
                with receiver, self._server_scope(command.cores):
                    with sender:
                        process.start()
                    reason = receiver.recv()
                if not reason:
                    return process, ""
                break
            except (OSError, EOFError) as error:
                cause = str(error) or "end of file"
                reason = f"the process that forks trials failed ({cause}); see {self._log}"
                time.sleep(_RETRY_SECONDS)  # until `multiprocessing` can wait for it
        self._failure = reason
        return None, reason

    @contextlib.contextmanager
    def _server_scope(self, cores: tuple[int, ...]) -> Iterator[None]:
        """Sets what a server reads that starts within a `with` block, if there is none.

        `multiprocessing` would also run the main module of this process again in each trial.
        """
        self._log.parent.mkdir(parents=True, exist_ok=True)
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        os.environ[SERVER_VARIABLE] = json.dumps([str(self._log), cores])
        try:
            yield
        finally:
            del os.environ[SERVER_VARIABLE]
            sys.modules["__main__"] = main


def _early(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that may be read while a module is imported."""
    return {name: value for name, value in environ.items() if name not in _LATE_VARIABLES}


class _ForkedTrial:
    """A `TrialProcess` that the forkserver forked."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        code = self._process.exitcode
        return -signal.SIGKILL if code == _SERVER_LOST else code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            send = os.killpg if number == signal.SIGKILL else os.kill
            with contextlib.suppress(ProcessLookupError):
                send(self.pid, number)
