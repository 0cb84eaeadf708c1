"""The peak memory of each device, as the benchmark measures it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CODE = """
import json
from benchmarks import partition
partition.SIZE = 64
# The model is kept, because graphs do not keep their variables.
model, steps = partition.build_steps()
peaks = {name: max(partition.peak_memory(step).values()) for name, step in steps.items()}
print(json.dumps(peaks))
"""


@pytest.mark.slow
def test_peak_memory_per_device_shrinks_with_the_number_of_parts() -> None:
    # TensorFlow enables oneDNN only on some processors. Without it, the scratch space of the
    # convolutions is larger than the activations of such a small network.
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    code = "from benchmarks import partition\npartition._configure_four_cpus()\n" + CODE
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    most = json.loads(done.stdout.splitlines()[-1])

    assert most["1 x 2"] < 0.56 * most["whole"]
    assert most["2 x 2"] < 0.30 * most["whole"]
