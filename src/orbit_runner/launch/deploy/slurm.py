"""A script for Slurm's `sbatch`, with the directives that its manual page describes."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator

from orbit_runner.launch.deploy.job_spec import JobSpec
from orbit_runner.launch.deploy.yaml_text import format_comment

SOURCE = "slurm"
_END = "END_OF_EXPERIMENT"
_SCRIPT = """\

set -o nounset
folder={folder}
mkdir -p "$folder"
cat > "$folder/experiment.yaml" <<'{end}'
{experiment}{end}

# --kill-on-bad-exit=0: if a member fails, the others are not killed, because they may be saving.
# --wait: seconds that the others have once the first member has exited.
srun --kill-on-bad-exit=0 --wait=600 {srun}
code=$?
# 138: a member was lost. 139: a member crashed (SIGSEGV); srun returns the highest exit code, which
# hides the 138 of the others. 143: the run saved after SIGTERM. A restart resumes the run.
case "$code" in
138 | 139 | 143)
  if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {restarts} ]; then
    scontrol requeue "$SLURM_JOB_ID"
  fi
  ;;
esac
exit "$code"
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slurm:
    """Settings of a Slurm script."""

    nodes: int = 0  # 0 for one per worker
    partition: str = ""  # "" for the default
    account: str = ""  # "" for the default


def manifest(job_spec: JobSpec, settings: Slurm) -> str:
    """Returns the script for `sbatch`."""
    command = [*srun_flags(job_spec), "runner", "run"]
    experiment, folder = '--experiment="$folder/experiment.yaml"', '--model_dir="$folder"'
    script = _SCRIPT.format(
        folder=shlex.quote(job_spec.model_dir),
        end=end_of_document(job_spec.experiment),
        experiment=job_spec.experiment,
        srun=" ".join([*command, experiment, folder, *map(shlex.quote, job_spec.arguments)]),
        restarts=job_spec.restarts,
    )
    return script_head(job_spec, settings) + script


def script_head(job_spec: JobSpec, settings: Slurm) -> str:
    """Returns the first lines of the script: what `sbatch` reads, and comments."""
    directives = "".join(f"#SBATCH --{text}\n" for text in _directives(job_spec, settings))
    notes = [
        "Slurm: sbatch FILE, from a shell in which `runner` is on PATH.",
        f"This directory must be accessible from all nodes: {job_spec.model_dir}",
        *_idle_gpu_notes(job_spec),
    ]
    return f"#!/bin/bash\n{directives}{format_comment([*job_spec.header, *notes])}"


def end_of_document(text: str) -> str:
    """Returns a word that ends a here-document and is not in its text."""
    end = _END
    while end in text:
        end += "_"
    return end


def _directives(job_spec: JobSpec, settings: Slurm) -> Iterator[str]:
    yield f"job-name={job_spec.name}"
    if job_spec.is_sweep:
        yield f"array=0-{job_spec.processes - 1}"
    nodes, tasks = (1, 1) if job_spec.is_sweep else (job_spec.roles["worker"], job_spec.processes)
    yield f"nodes={settings.nodes or nodes}"
    yield f"ntasks={tasks}"
    if job_spec.cpus:
        yield f"cpus-per-task={job_spec.cpus}"
    if job_spec.memory:
        yield f"mem-per-cpu={math.ceil(job_spec.memory / (job_spec.cpus or 1))}M"
    if job_spec.gpus:
        yield f"gpus-per-task={job_spec.gpus}"
    if job_spec.seconds:
        days, rest = divmod(job_spec.seconds, 24 * 3600)
        yield f"time={days}-{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    if settings.partition:
        yield f"partition={settings.partition}"
    if settings.account:
        yield f"account={settings.account}"
    yield "requeue"
    # Sent to all tasks, early enough to save.
    yield f"signal=TERM@{job_spec.grace}"
    yield "open-mode=append"
    yield "output=%x-%A_%a.log" if job_spec.is_sweep else "output=%x-%j.log"


def srun_flags(job_spec: JobSpec) -> Iterator[str]:
    """Yields the flags of `srun` that depend on the job."""
    # Since Slurm 22.05, steps do not inherit this from the job.
    if job_spec.cpus:
        yield f"--cpus-per-task={job_spec.cpus}"


def _idle_gpu_notes(job_spec: JobSpec) -> Iterator[str]:
    if job_spec.gpus and "ps" in job_spec.roles:
        yield "All tasks get the same; the chief and the parameter servers do not use their GPUs."
