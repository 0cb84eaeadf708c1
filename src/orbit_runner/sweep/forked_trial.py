"""A trial that the forkserver of `multiprocessing` forks, and what the server imports before that.

Forking is safe only before TensorFlow has started: its threads would be missing in the trial. So
the server imports, but creates nothing, and runs no thread but its own.
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
import sys
import traceback
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute import tf_environment
from orbit_runner.launch.process import parent_death_hook
from orbit_runner.sweep.trial_process import TrialCommand

# The environment variable with the log and the cores of the server.
SERVER_VARIABLE = "ORBIT_RUNNER_FORKSERVER"
# What a run imports, also at its end, and the tasks. None of them starts a thread on import.
_MODULES = (
    *("orbit_runner.train_lib", "orbit_runner.cli.main", "orbit_runner.cli.commands.run"),
    *(f"orbit_runner.models.{name}" for name in ("cnn", "mlp", "resnet_cifar")),
    *(f"orbit_runner.datasets.{name}" for name in ("cifar10", "digits", "mnist")),
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
    path = _path_of_new_process()
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


def _path_of_new_process() -> list[str]:
    """Returns `sys.path` of `python -m` here. From Python 3.12.8 on, the server has another one."""
    first = [] if getattr(sys.flags, "safe_path", False) else [os.getcwd()]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    first += [os.path.abspath(place) for place in given if place]
    return [*dict.fromkeys([*first, *filter(None, sys.path)])]


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
    """Resets this forked process to the state of a new one, runs the command and exits.

    `parent` is the process that forked this one. When it dies, this one is killed.
    """
    _end_with(parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _redirect_output(command.log)
    if command.cores:
        os.sched_setaffinity(0, command.cores)
    os.environ.clear()
    os.environ.update(command.environ)
    random.seed()  # From the operating system: all forks inherit the same states.
    importlib.import_module("numpy").random.seed()
    new_process = [sys.executable, "-m", "orbit_runner", *command.arguments]
    sys.argv[:] = ["runner", *command.arguments]
    sys.orig_argv[:] = new_process
    gc.enable()
    try:
        # Not an `import`, because the command line is a layer above.
        importlib.import_module("orbit_runner.cli.main").entry()
    except tf_environment.ImportedTooEarly as error:
        print(f"runner: restarting, because {error}", file=sys.stderr, flush=True)
        os.execve(sys.executable, new_process, command.environ)


def _stamps(names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Returns the time and size of each file that exists."""
    found = {name: os.stat(name) for name in names if os.path.exists(name)}
    return {name: (status.st_mtime_ns, status.st_size) for name, status in found.items()}


def _end_with(parent: int) -> None:
    if hook := parent_death_hook(parent):
        hook()


def _redirect_output(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
