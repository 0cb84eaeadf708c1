"""A script for Slurm's `sbatch`, with the directives that its manual page describes."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator

from orbit_runner.launch.deploy.job_spec import Order
from orbit_runner.launch.deploy.yaml_text import comment

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


def manifest(order: Order, place: Slurm) -> str:
    """Returns the script for `sbatch`."""
    command = [*srun_flags(order), "runner", "run"]
    experiment, folder = '--experiment="$folder/experiment.yaml"', '--model_dir="$folder"'
    script = _SCRIPT.format(
        folder=shlex.quote(order.model_dir),
        end=end_of_document(order.experiment),
        experiment=order.experiment,
        srun=" ".join([*command, experiment, folder, *map(shlex.quote, order.arguments)]),
        restarts=order.restarts,
    )
    return head(order, place) + script


def head(order: Order, place: Slurm) -> str:
    """Returns the first lines of the script: what `sbatch` reads, and comments."""
    directives = "".join(f"#SBATCH --{text}\n" for text in _directives(order, place))
    notes = [
        "Slurm: sbatch FILE, from a shell in which `runner` is on PATH.",
        f"This directory must be accessible from all nodes: {order.model_dir}",
        *_idle(order),
    ]
    return f"#!/bin/bash\n{directives}{comment([*order.header, *notes])}"


def end_of_document(text: str) -> str:
    """Returns a word that ends a here-document and is not in its text."""
    end = _END
    while end in text:
        end += "_"
    return end


def _directives(order: Order, place: Slurm) -> Iterator[str]:
    yield f"job-name={order.name}"
    if order.is_sweep:
        yield f"array=0-{order.processes - 1}"
    nodes, tasks = (1, 1) if order.is_sweep else (order.roles["worker"], order.processes)
    yield f"nodes={place.nodes or nodes}"
    yield f"ntasks={tasks}"
    if order.cpus:
        yield f"cpus-per-task={order.cpus}"
    if order.memory:
        yield f"mem-per-cpu={math.ceil(order.memory / (order.cpus or 1))}M"
    if order.gpus:
        yield f"gpus-per-task={order.gpus}"
    if order.seconds:
        days, rest = divmod(order.seconds, 24 * 3600)
        yield f"time={days}-{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    if place.partition:
        yield f"partition={place.partition}"
    if place.account:
        yield f"account={place.account}"
    yield "requeue"
    # Sent to all tasks, early enough to save.
    yield f"signal=TERM@{order.grace}"
    yield "open-mode=append"
    yield "output=%x-%A_%a.log" if order.is_sweep else "output=%x-%j.log"


def srun_flags(order: Order) -> Iterator[str]:
    """Yields the flags of `srun` that depend on the order."""
    # Since Slurm 22.05, steps do not inherit this from the job.
    if order.cpus:
        yield f"--cpus-per-task={order.cpus}"


def _idle(order: Order) -> Iterator[str]:
    if order.gpus and "ps" in order.roles:
        yield "All tasks get the same; the chief and the parameter servers do not use their GPUs."
