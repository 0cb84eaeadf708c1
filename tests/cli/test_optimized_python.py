"""`PYTHONOPTIMIZE=2` removes docstrings, without which TensorFlow cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ADVICE = "Python runs with -OO or PYTHONOPTIMIZE=2; unset it, or use -O or PYTHONOPTIMIZE=1"


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONOPTIMIZE": "2"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--experiment=digits", "--model_dir=a"],
        ["launch", "--workers=2", "--", "--experiment=digits", "--model_dir=a",
         "--distribution_strategy=multi_worker_mirrored"],
        ["export", "run"],
        ["list", "--official"],
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_commands_that_need_tensorflow_say_so_in_one_line(
    arguments: list[str], finished_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").symlink_to(finished_run)
    done = _run(tmp_path, "-m", "orbit_runner", *arguments)

    assert done.returncode == 2, done.stderr
    assert _ADVICE in done.stderr
    assert "Traceback" not in done.stderr


def test_other_commands_work(tmp_path: Path) -> None:
    done = _run(tmp_path, "-m", "orbit_runner", "validate", "digits")

    assert (done.returncode, done.stderr) == (0, "")


def test_the_python_api_says_so(tmp_path: Path) -> None:
    done = _run(tmp_path, "-c", "import orbit_runner; orbit_runner.Task")

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("orbit_runner.errors.RunnerError: TensorFlow cannot be imported")
