"""The estimated memory of experiments against what TensorFlow's allocator reports."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SYNTHETIC = "--config_file=configs/data/synthetic.yaml"


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "flags",
    [
        ["digits_mlp", "--task.train_data.global_batch_size=1024"],
        ["mnist", SYNTHETIC],
        ["ncf_movielens", SYNTHETIC, "--task.train_data.global_batch_size=65536"],
    ],
)
def test_estimate_is_close_to_the_measured_peak(flags: list[str]) -> None:
    # In a process of its own, because the allocator is chosen when TensorFlow starts.
    command = [sys.executable, "-m", "orbit_runner", "inspect", *flags]
    # Two threads run ops in an order, and with a peak, that depends on what else the machine does.
    command.append("--runtime.inter_op_threads=1")
    done = subprocess.run(
        [*command, "--measure", "--json", "--quiet"], check=True, stdout=subprocess.PIPE
    )
    found = json.loads(done.stdout)

    assert found["memory"]["peak"] == pytest.approx(found["measured"]["peak_bytes"], rel=0.2)
