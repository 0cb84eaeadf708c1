"""The script of a job array, run for real: two elements train a sweep, one of them preempted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hold import NAME, hold_environ, is_held, release
from tests.support.launches import SECONDS, wait_for
from tests.support.slurm_scripts import BASH
from tests.sweep.sweep_files import write

TEXT = f"""\
experiment: digits_mlp
overrides:
  trainer: {{train_steps: 400, validation_interval: 200, checkpoint_interval: 200}}
  task.model: {{hidden_units: [16]}}
  callbacks: [{NAME}]
space:
  task.model.dropout_rate: [0.0, 0.3]
objective: {{metric: accuracy, mode: max}}
search: {{type: grid}}
"""
# Without flags, a fake `srun` replaces itself with the command, and notes its process ID.
SRUN = '#!/bin/bash\necho "$$" > "pid-$SLURM_ARRAY_TASK_ID"\nexec "$@"\n'
SCONTROL = '#!/bin/bash\necho "$@" >> requeued\n'


def _write_programs(folder: Path) -> None:
    """Writes the programs that a script calls, once: no program may change while it starts."""
    programs = {
        "srun": SRUN,
        "scontrol": SCONTROL,
        "runner": f'#!/bin/bash\nexec "{sys.executable}" -m orbit_runner "$@"\n',
    }
    (folder / "bin").mkdir()
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)


def _start(script: str, folder: Path, index: int, restarts: int) -> subprocess.Popen[str]:
    """Starts an element of the array as Slurm does."""
    environ = {
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
        "SLURM_JOB_ID": str(40 + index),
        "SLURM_ARRAY_JOB_ID": "40",
        "SLURM_ARRAY_TASK_ID": str(index),
        "SLURM_RESTART_COUNT": str(restarts),
        "SLURM_NTASKS": "1",
    }
    process = subprocess.Popen(
        [BASH, "-s"], cwd=folder, env={**os.environ, **environ, **hold_environ(folder)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(script)
    process.stdin.close()
    process.stdin = None
    return process


def _tree(root: int) -> list[int]:
    """Returns a process and all below it."""
    found = [root]
    for pid in found:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found += [int(child) for child in children]
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_preempted_element_continues_the_sweep_together_with_another(
    printed: Callable[..., str], tmp_path: Path
) -> None:
    write(tmp_path, TEXT)
    _write_programs(tmp_path)
    script = printed("slurm", "--sweep=s.yaml", "--workers=2", "--model_dir=shared/sweep")

    first = _start(script, tmp_path, 0, restarts=0)
    wait_for(lambda: is_held(tmp_path) or first.poll() is not None)
    for pid in _tree(int((tmp_path / "pid-0").read_text())):
        os.kill(pid, signal.SIGTERM)  # Slurm sends it to all processes of a step.
    release(tmp_path)  # The run saves a checkpoint and ends.
    _, err = first.communicate(timeout=SECONDS)
    assert first.returncode == 143, err
    assert (tmp_path / "requeued").read_text() == "requeue 40_0\n"
    elements = [_start(script, tmp_path, index, restarts=1 - index) for index in range(2)]
    for element in elements:
        _, err = element.communicate(timeout=SECONDS)
        assert element.returncode == 0, err

    found = json.loads((tmp_path / "shared/sweep/sweep.json").read_text())
    assert [trial["status"] for trial in found["trials"]] == ["finished", "finished"]
    log = (tmp_path / "shared/sweep/logs/0000.log").read_text()
    (saved,) = re.findall(r"SIGTERM: saved at step (\d+)", log)
    assert f"\nrestored step {saved} from " in log
    # The elements did not train a run twice.
    assert log.count("training from step") == 2
    assert (tmp_path / "shared/sweep/logs/0001.log").read_text().count("training from step") == 1
    assert (tmp_path / "requeued").read_text() == "requeue 40_0\n"
