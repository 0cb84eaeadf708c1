"""Forks of a process that has imported TensorFlow, in which tests run `runner`.

Forking is safe only before TensorFlow has started: its threads would be missing in the fork. So the
parent imports, but creates nothing, and runs no thread.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute import tf_environment
from orbit_runner.launch.supervisor import parent_death_hook

# What a run imports, also at its end, and the tasks. None of them starts a thread on import.
_MODULES = (
    *("orbit_runner.train_lib", "orbit_runner.cli.main", "orbit_runner.cli.commands.run"),
    *(f"orbit_runner.models.{name}" for name in ("simple", "resnet_cifar")),
    *(f"orbit_runner.datasets.{name}" for name in ("cifar10", "scikit_learn", "mnist")),
    *(f"orbit_runner.tasks.{name}.task" for name in ("image_classification", "keras", "tabular")),
    *("orbit_runner.tasks.recommendation.task", "orbit_runner.tasks.translation.task"),
    "orbit_runner.reporting.progress.lines",
    *("orbit_runner.reporting.report_collection", "orbit_runner.reporting.results"),
    *("orbit_runner.reporting.run_record", "rich.console", "rich.text"),
)


class _ImportedTooEarly(BaseException):
    """TensorFlow was imported before a variable was set: a new process must be started."""


def import_modules() -> None:
    """Imports what a run imports, with the environment variables that a run sets."""
    gc.disable()
    imported_with = dict(os.environ)
    tf_environment.prepare_environment(RuntimeConfig())
    for name in _MODULES:
        importlib.import_module(name)
    required_variables = tf_environment.required_variables

    def refuse_late_variables(runtime: RuntimeConfig) -> Iterator[tuple[str, str]]:
        for name, value in required_variables(runtime):
            if imported_with.get(name) != value:
                raise _ImportedTooEarly
            yield name, value

    tf_environment.required_variables = refuse_late_variables
    gc.freeze()


def reason_not_to_fork() -> str:
    """Returns why forks of this process could hang or fail, or "" if they are safe."""
    # OpenBLAS ends its threads before each fork, and starts them when needed.
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    names = sorted(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
    return f"the imported modules started threads: {', '.join(names)}" if len(names) > 1 else ""


def run_in_fork(arguments: Sequence[str], environ: Mapping[str, str], parent: int) -> None:
    """Resets this forked process to the state of a new one, runs `runner` and exits.

    `parent` is the process that forked this one. When it dies, this one is killed.
    """
    if hook := parent_death_hook(parent):
        hook()
    os.environ.clear()
    os.environ.update(environ)
    random.seed()  # From the operating system: all forks inherit the same states.
    importlib.import_module("numpy").random.seed()
    new_process = [sys.executable, "-m", "orbit_runner", *arguments]
    sys.argv[:] = ["runner", *arguments]
    sys.orig_argv[:] = new_process
    gc.enable()
    try:
        importlib.import_module("orbit_runner.cli.main").entry()
    except _ImportedTooEarly:
        os.execve(sys.executable, new_process, dict(environ))
