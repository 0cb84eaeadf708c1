"""Commands and Python code in processes of their own, to their end."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any


def process(*command: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command; returns its exit code and what it printed."""
    words = [*map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, check=False, **settings)


def runner(*arguments: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command `runner`."""
    return process(sys.executable, "-m", "orbit_runner", *arguments, **settings)


def printed_by(code: str, *arguments: str, **environ: str) -> list[str]:
    """Runs code in another process, which must succeed; returns the lines that it prints."""
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environ}
    completed = process(sys.executable, "-c", code, *arguments, env=variables)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.splitlines()
