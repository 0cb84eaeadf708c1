#!/bin/bash
# Four workers on Slurm, one on each node, with one GPU each. Edit this file for your cluster, and
# run it from a shell in which `runner` is on PATH: sbatch slurm.sh
# All nodes need access to the run directory and to the data.
#SBATCH --job-name=resnet-cifar
#SBATCH --nodes=4
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=1
#SBATCH --output=%x-%j.log
#SBATCH --requeue
#SBATCH --open-mode=append
# Sent to all tasks, early enough to save:
#SBATCH --signal=TERM@120
# To use one of these, edit it and remove one `#`:
##SBATCH --time=1-00:00:00
##SBATCH --partition=NAME
##SBATCH --account=NAME
##SBATCH --cpus-per-task=8

set -o nounset
restarts=10  # the most automatic restarts

# Steps do not inherit --cpus-per-task from the job.
# --kill-on-bad-exit=0: if a member fails, the others are not killed, because they may be saving.
# --wait: seconds that the others have once the first member has exited.
srun ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK} --kill-on-bad-exit=0 --wait=600 \
  runner run --experiment=resnet_cifar --config_file=configs/runtime/multi_worker.yaml \
  --num_gpus=1 --data_dir=/shared/cifar10 --model_dir=/shared/runs/resnet_cifar
code=$?

# 138: a member was lost. 139: a member crashed (SIGSEGV); srun returns the highest exit code, which
# hides the 138 of the others. 143: the work was saved after SIGTERM. A restart continues it.
case "$code" in
138 | 139 | 143)
  if [ "${SLURM_RESTART_COUNT:-0}" -lt "$restarts" ]; then
    scontrol requeue "$SLURM_JOB_ID"
  fi
  ;;
esac
exit "$code"
