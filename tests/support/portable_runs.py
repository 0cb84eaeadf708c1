"""Short runs with portable numerics, each in a process of its own, on this or another processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.fingerprints import ROOT, write_cifar

_SYNTHETIC = f"--config_file={ROOT}/configs/data/synthetic.yaml"
# The flags of each run. Some products of matrices must have more columns than Eigen's blocks.
FLAGS = {
    "digits": ["--experiment=digits"],
    "digits_mlp": ["--experiment=digits_mlp"],
    "breast_cancer": ["--experiment=breast_cancer"],
    "diabetes": ["--experiment=diabetes"],
    "resnet_cifar": [
        "--experiment=resnet_cifar",
        "--data_dir=.",
        "--task.model.depth=8",
        "--task.model.dropout_rate=0.2",
        "--task.train_data.global_batch_size=8",
        "--task.validation_data.global_batch_size=8",
    ],
    "ncf_movielens": ["--experiment=ncf_movielens", _SYNTHETIC],
    "transformer_multi30k": [
        "--experiment=transformer_multi30k",
        _SYNTHETIC,
        "--task.train_data.global_batch_size=8",
    ],
}


def portable_weights(
    name: str,
    folder: Path,
    steps: int,
    *flags: str,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    timeout: float = 900.0,
) -> str:
    """Trains a run and returns the SHA-256 of its weights.

    `prefix` comes before the interpreter, such as `taskset -c 0`.
    """
    if name == "resnet_cifar":
        folder.mkdir(parents=True, exist_ok=True)
        write_cifar(folder)
    words = [*FLAGS[name], "--runtime.numerics=portable", "--mode=train", "--model_dir=run"]
    words += [f"--train_steps={steps}", *flags]
    folder.mkdir(parents=True, exist_ok=True)
    completed = subprocess.run(
        [*prefix, os.path.realpath(sys.executable), "-m", "orbit_runner", "run", *words],
        cwd=folder, capture_output=True, text=True, check=False, timeout=timeout,
        env={**os.environ, **_path(), **(environment or {})},
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr[-3000:]
    lines = (folder / "run/checkpoints/fingerprints.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    assert last["step"] == steps
    return str(last["weights"])


def _path() -> dict[str, str]:
    """Returns the module path of this process: an emulator starts the interpreter itself."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
