"""A job array for Slurm, whose elements run `runner sweep` on one shared directory."""

from __future__ import annotations

import shlex

from orbit_runner.launch.deploy.job_spec import JobSpec
from orbit_runner.launch.deploy.slurm import Slurm, end_of_document, script_head, srun_flags

_SCRIPT = """\

set -o nounset
# Each element has a copy of the sweep file; they share the directory of the sweep.
copy=$(mktemp -d) || exit 1
trap 'rm -r "$copy"' EXIT
cat > "$copy/{name}" <<'{end}' || exit 1
{sweep}{end}

srun {srun}
code=$?
# 143: the trials saved after SIGTERM. 138 and 139: a process was lost. The element starts again and
# continues them; the others go on meanwhile.
case "$code" in
138 | 139 | 143)
  if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {restarts} ]; then
    # Not $SLURM_JOB_ID: for one of the elements, it is the number of the whole array.
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
  fi
  ;;
esac
exit "$code"
"""


def manifest(job_spec: JobSpec, settings: Slurm) -> str:
    """Returns the script for `sbatch`."""
    file, folder = f'"$copy/{job_spec.file_name}"', shlex.quote(f"--model_dir={job_spec.model_dir}")
    command = [*srun_flags(job_spec), "runner", "sweep", file, folder]
    script = _SCRIPT.format(
        name=job_spec.file_name,
        end=end_of_document(job_spec.experiment),
        sweep=job_spec.experiment,
        srun=" ".join([*command, *map(shlex.quote, job_spec.arguments)]),
        restarts=job_spec.restarts,
    )
    return script_head(job_spec, settings) + script
