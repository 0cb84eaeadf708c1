"""Scripts for Slurm, read as `sbatch` does and run with a fake `srun` and `scontrol`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BASH = shutil.which("bash") or pytest.skip("there is no bash", allow_module_level=True)
# A fake `srun` and `scontrol` that records its arguments.
RECORDER = """\
#!/bin/bash
printf '%s\\0' "$(basename "$0")" "$@" >> calls
printf '\\n' >> calls
[ "$(basename "$0")" = srun ] && exit "${SRUN_CODE:-0}"
exit 0
"""


def directives(text: str) -> dict[str, str]:
    """Reads as `sbatch` does: up to the first line that is not a comment."""
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH "):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            found[name] = value
    return found


def run_script(
    text: str, folder: Path, *, srun: str = RECORDER, **environ: str
) -> tuple[int, list[list[str]]]:
    """Runs a script; returns its exit code and the commands that it called."""
    checked = subprocess.run([BASH, "-n"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("srun", "scontrol"):
        (folder / "bin" / name).write_text(srun if name == "srun" else RECORDER)
        (folder / "bin" / name).chmod(0o755)
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        [BASH, "-s"],
        input=text,
        cwd=folder,
        env={"PATH": path, "SLURM_JOB_ID": "42", **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    calls = (folder / "calls").read_text().split("\n")
    return done.returncode, [call.split("\0")[:-1] for call in calls if call]
