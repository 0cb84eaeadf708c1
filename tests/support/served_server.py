"""A worker or a parameter server of the tests; arguments: jobs as JSON, role, index."""

import ctypes
import json
import signal
import sys

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # Not to outlive the tests, however they end.

import tensorflow as tf  # noqa: E402

jobs, role, index = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
spec = tf.train.ClusterSpec(jobs)
tf.distribute.Server(spec, job_name=role, task_index=index, protocol="grpc").join()
