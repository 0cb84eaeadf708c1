"""When the warm parent refuses to fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_runner.cli.sweep.loaded_files import LoadedFiles

_SCRIPT = """\
from orbit_runner.cli.sweep.warm_parent import import_modules, reason_not_to_fork
import_modules()
{}
print(reason_not_to_fork() or "safe")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("", "safe"),
        ("import numpy; numpy.ones([500, 500]) @ numpy.ones([500, 500])", "safe"),
        (
            "import tensorflow; tensorflow.constant(1.0)",
            "TensorFlow has started before the fork",
        ),
        (
            "import threading; event = threading.Event()\n"
            "threading.Thread(target=event.wait, daemon=True).start()",
            "the imported modules started threads: python",
        ),
    ],
    ids=["imports", "a product of NumPy", "an op", "a thread"],
)
def test_forking_is_safe_after_imports_only(code: str, reason: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(code)], capture_output=True, text=True, check=False
    )

    assert done.stdout.startswith(reason), done.stderr


def test_changed_or_deleted_files_of_modules_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "module_of_a_trial.py"
    path.write_text("a = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("module_of_a_trial")
    files = LoadedFiles()
    monkeypatch.delitem(sys.modules, "module_of_a_trial")
    assert files.changed_file() == ""

    stat = path.stat()
    path.write_text("a = 2\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert files.changed_file() == str(path)
    path.unlink()
    assert files.changed_file() == str(path)
