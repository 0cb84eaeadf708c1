"""A trial in a forked process: resets its state to that of a new process, then runs the command."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from orbit_runner.distribute.tf_environment import ImportedTooEarly
from orbit_runner.launch.process import parent_death_hook


def run_trial(request: Mapping[str, Any], parent: int) -> NoReturn:
    """Runs the command of a request in this forked process, and exits with its exit code.

    `parent` is the process that forked this one. When it dies, this one is killed.
    """
    code = 1
    try:
        _set_up_process(request, parent)
        code = _run_command(request)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        # Not `sys.exit`, which would continue the code of the parent.
        os._exit(code)


def _set_up_process(request: Mapping[str, Any], parent: int) -> None:
    os.setsid()
    dies = parent_death_hook(parent)
    if dies is not None:
        dies()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # The parent ignores it, and blocks it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    if request["cores"]:
        os.sched_setaffinity(0, request["cores"])
    os.environ.clear()
    os.environ.update(request["environ"])
    _reseed_generators()
    sys.argv[:] = ["runner", *request["arguments"]]
    sys.orig_argv[:] = [sys.executable, "-m", "orbit_runner", *request["arguments"]]
    gc.enable()


def _reseed_generators() -> None:
    """Seeds from the operating system: all forks inherit the same generator states."""
    import numpy as np

    random.seed()
    np.random.seed()


def _run_command(request: Mapping[str, Any]) -> int:
    from orbit_runner.cli.main import entry

    try:
        entry()
    except SystemExit as done:
        return int(done.code or 0)
    except ImportedTooEarly as error:
        print(f"runner: restarting, because {error}", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "orbit_runner", *request["arguments"]]
        os.execve(sys.executable, command, request["environ"])
