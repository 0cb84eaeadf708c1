"""Commands in processes of their own, to their end."""

from __future__ import annotations

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
