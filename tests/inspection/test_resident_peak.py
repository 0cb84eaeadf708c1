"""The measured memory is that of the process itself, not that of the process that started it."""

import subprocess
import sys

import pytest

_GIB = 2**30
_CHILD = "from orbit_runner.inspection.measure import resident_peak; print(resident_peak())"
_PARENT = f"""
import subprocess, sys
large = b"x" * {_GIB}
subprocess.run([sys.executable, "-c", {_CHILD!r}], check=True)
"""


@pytest.mark.slow
def test_peak_does_not_include_the_memory_of_the_parent() -> None:
    done = subprocess.run([sys.executable, "-c", _PARENT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 2**26 < int(done.stdout) < _GIB
