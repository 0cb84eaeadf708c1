"""A run whose batches are made by tf.data services that others started."""

import contextlib
import subprocess
import sys

import pytest

from tests.clusters.members import EXPERIMENT, alone, content
from tests.support import warm_runner

RUN = (*EXPERIMENT, "--train_steps=60", "--task.train_data.augment=crop")
_SERVICE = """
import sys
from tensorflow.data.experimental import service
dispatcher = service.DispatchServer()
worker = service.WorkerServer(service.WorkerConfig(dispatcher.target.partition("://")[2]))
print(dispatcher.target, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def _services(count):
    """Starts services, returns the flag that names them, and kills them at the end."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _SERVICE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for _ in range(count)
    ]  # fmt: skip
    try:
        addresses = [process.stdout.readline().strip() for process in processes if process.stdout]
        yield f"--runtime.tf_data_service={','.join(addresses)}"
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_external_services_do_not_change_the_weights(tmp_path):
    with _services(2) as flag:
        alone(tmp_path / "served", *RUN, flag)
    alone(tmp_path / "alone", *RUN)
    assert content(tmp_path / "served") == content(tmp_path / "alone")

    # The services that config.yaml names are no longer running.
    assert warm_runner.run("reproduce", str(tmp_path / "served" / "run")).returncode == 0
