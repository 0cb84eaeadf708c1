#!/bin/bash
# Two workers on machines that you start by hand: run `bash tf_config.sh 0` on host-a, and
# `bash tf_config.sh 1` on host-b. Both need access to the run directory and to the data.
# A scheduler that knows the index of a process can run the same script.

set -o errexit -o nounset
index=$1

export TF_CONFIG='{
  "cluster": {"worker": ["host-a:2222", "host-b:2222"]},
  "task": {"type": "worker", "index": '"$index"'}
}'
exec runner run --experiment=resnet_cifar --config_file=configs/runtime/multi_worker.yaml \
  --num_gpus=1 --data_dir=/shared/cifar10 --model_dir=/shared/runs/resnet_cifar
