#!/bin/bash
# A chief, two workers and a parameter server, on machines that you start by hand:
#   bash parameter_servers.sh chief 0    on host-a
#   bash parameter_servers.sh ps 0       on host-a
#   bash parameter_servers.sh worker 0   on host-b
#   bash parameter_servers.sh worker 1   on host-c
# All need access to the run directory and to the data. The workers and the parameter server exit
# after the chief.

set -o errexit -o nounset
role=$1
index=$2

export TF_CONFIG='{
  "cluster": {
    "chief": ["host-a:2222"],
    "ps": ["host-a:2223"],
    "worker": ["host-b:2222", "host-c:2222"]
  },
  "task": {"type": "'"$role"'", "index": '"$index"'}
}'
exec runner run --experiment=ncf_movielens --config_file=configs/runtime/parameter_server.yaml \
  --data_dir=/shared/ml-1m --model_dir=/shared/runs/ncf_movielens
