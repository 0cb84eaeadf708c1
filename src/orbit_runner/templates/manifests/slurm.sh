#!/bin/bash
#SBATCH --job-name=$name
$directives
#SBATCH --requeue
#SBATCH --open-mode=append
# Sent to all tasks, early enough to save:
#SBATCH --signal=TERM@$grace
# To use one of these, edit it and remove one `#`:
##SBATCH --time=1-00:00:00
##SBATCH --partition=NAME
##SBATCH --account=NAME
##SBATCH --cpus-per-task=8
##SBATCH --mem-per-cpu=4G
$header
# Slurm: sbatch FILE, from a shell in which `runner` is on PATH. All nodes need access to the directory.

set -o nounset
restarts=10  # the most automatic restarts
folder=$folder
file=$file
mkdir -p "$$folder"
cat > "$$file" <<'$end' || exit 1
$document$end

# Steps do not inherit --cpus-per-task from the job.
# --kill-on-bad-exit=0: if a member fails, the others are not killed, because they may be saving.
# --wait: seconds that the others have once the first member has exited.
srun $${SLURM_CPUS_PER_TASK:+--cpus-per-task=$$SLURM_CPUS_PER_TASK} --kill-on-bad-exit=0 --wait=600 \
  $command
code=$$?
# 138: a member was lost. 139: a member crashed (SIGSEGV); srun returns the highest exit code, which
# hides the 138 of the others. 143: the work was saved after SIGTERM. A restart continues it.
case "$$code" in
138 | 139 | 143)
  if [ "$${SLURM_RESTART_COUNT:-0}" -lt "$$restarts" ]; then
    scontrol requeue "$job"
  fi
  ;;
esac
exit "$$code"
