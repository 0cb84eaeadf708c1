"""Locks of trials: one process at a time, released when it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orbit_runner.sweep.sharing import Claims
from tests.support.problems import raises

_HOLDER = """\
import sys, time
from pathlib import Path
from orbit_runner.sweep.sharing import Claims
claim = Claims(Path(sys.argv[1])).try_acquire("0007")
print("taken", flush=True)
time.sleep(60)
"""


def test_lock_is_held_by_one_process_until_it_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert Claims(tmp_path).try_acquire("0007") is None
        assert Claims(tmp_path).try_acquire("0008") is not None
        holder.kill()
    assert Claims(tmp_path).try_acquire("0007") is not None


def test_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    with Claims(tmp_path).acquire("a"):
        assert Claims(tmp_path).try_acquire("a") is None
    assert Claims(tmp_path).try_acquire("a") is not None


def test_child_process_does_not_keep_a_lock(tmp_path: Path) -> None:
    with Claims(tmp_path).acquire("a"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert Claims(tmp_path).try_acquire("a") is not None
    finally:
        child.kill()
        child.wait()


def test_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "claims").write_text("")

    with raises("not-writable", "--model_dir"):
        Claims(tmp_path / "claims").try_acquire("a")
