"""Starts runs whose writing system calls a test answers: as new processes, or as forks.

A fork of a process that has imported TensorFlow saves the seconds that the import takes. The fork
does all else that a new process does.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.faults.system_calls import send_listener
from tests.support import warm_runner

_ROOT = Path(__file__).resolve().parents[2]
Process = subprocess.Popen[bytes] | warm_runner.WarmProcess


def start(arguments: Sequence[str], log: Path, *, as_fork: bool) -> tuple[Process, int]:
    """Starts `runner` with its output in a file, and returns the descriptor of a listener too."""
    env = {**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{_ROOT / 'src'}"}
    ours, theirs = socket.socketpair()
    with ours, theirs, log.open("wb") as output:
        process: Process
        if as_fork:
            process = warm_runner.start(
                *arguments, cwd=log.parent, env=env, stdout=output, stderr=output, listener=theirs
            )
        else:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            process = subprocess.Popen(
                [*command, sys.executable, "-m", "orbit_runner", *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env=env,
            )
        theirs.close()
        _, [descriptor], _, _ = socket.recv_fds(ours, 1, 1)
    return process, descriptor


if __name__ == "__main__":
    send_listener(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
