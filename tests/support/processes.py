"""Python code in other processes."""

from __future__ import annotations

import os
import subprocess
import sys


def printed_by(code: str, *arguments: str, **environ: str) -> list[str]:
    """Runs code in another process, which must succeed; returns the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environ},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
