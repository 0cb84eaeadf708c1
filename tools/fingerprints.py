"""Writes fingerprints of the weights of short runs, or compares them after a change of the code.

    python tools/fingerprints.py write runs/before.json
    python tools/fingerprints.py compare runs/before.json [--only NAME …]

Each run is a separate process, on synthetic data, with one thread per op. Fingerprints are valid
for one machine and one set of packages only: write them before a change, on the machine on which
you compare them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 900
_ONE_THREAD = "--runtime.intra_op_threads=1"
# A short run begins the schedule of a whole one, which follows the length of the run by default.
_WHOLE_SCHEDULE = "--trainer.optimizer_config.learning_rate.cosine.decay_steps=900"
_SYNTHETIC = f"--config_file={ROOT}/configs/data/synthetic.yaml"
_RECORDS_CONFIG = """
task:
  name: image_classification
  model: {name: cnn, num_classes: 4, dropout_rate: 0.2, input_size: [6, 5, 3]}
  train_data: {source: tfrecord, input_path: "train-*", global_batch_size: 8}
  validation_data: {source: tfrecord, input_path: "train-*", global_batch_size: 8}
trainer:
  train_steps: 40
  optimizer_config:
    optimizer: {type: adam}
    learning_rate: {type: constant, constant: {learning_rate: 0.001}}
runtime: {distribution_strategy: one_device, seed: 3}
"""


@dataclasses.dataclass(frozen=True)
class Run:
    """The flags of a run, and a function that writes its data to its working directory."""

    flags: tuple[str, ...]
    write_data: Callable[[Path], None] = lambda directory: None
    launch: tuple[str, ...] = ()

    def command(self, model_dir: str) -> list[str]:
        """Returns the command line."""
        flags = [*self.flags, _ONE_THREAD, f"--model_dir={model_dir}"]
        words = ["launch", *self.launch, "--", *flags] if self.launch else ["run", *flags]
        return [sys.executable, "-m", "orbit_runner", *words]


def write_cifar(directory: Path) -> None:
    """Writes random images in the binary version of CIFAR-10."""
    draw = np.random.default_rng(0)
    for name, rows in (*((f"data_batch_{k}.bin", 64) for k in range(1, 6)), ("test_batch.bin", 64)):
        table = draw.integers(0, 256, (rows, 3073)).astype(np.uint8)
        table[:, 0] %= 10
        table.tofile(directory / name)


def write_records(directory: Path) -> None:
    """Writes TFRecord files of small images, and a config that reads them."""
    code = (
        "import sys, numpy as np, tensorflow as tf\n"
        "draw = np.random.default_rng(0)\n"
        "for file in range(3):\n"
        "    with tf.io.TFRecordWriter(f'{sys.argv[1]}/train-{file}') as writer:\n"
        "        for row in range(50 + file):\n"
        "            image = tf.io.encode_png(draw.integers(0, 256, (6, 5, 3)).astype(np.uint8))\n"
        "            feature = {\n"
        "                'image/encoded': tf.train.Feature(\n"
        "                    bytes_list=tf.train.BytesList(value=[image.numpy()])),\n"
        "                'image/class/label': tf.train.Feature(\n"
        "                    int64_list=tf.train.Int64List(value=[row % 4])),\n"
        "            }\n"
        "            features = tf.train.Features(feature=feature)\n"
        "            writer.write(tf.train.Example(features=features).SerializeToString())\n"
    )
    subprocess.run([sys.executable, "-c", code, str(directory)], check=True, capture_output=True)
    (directory / "records.yaml").write_text(_RECORDS_CONFIG)


def write_sample(name: str) -> Callable[[Path], None]:
    """Returns a function that writes data and a config for an experiment of Model Garden.

    The experiment must be in `tools/model_garden_sample.py`.
    """
    code = (
        "import sys, pathlib\n"
        "from tools.model_garden_sample import write\n"
        "write(sys.argv[1], pathlib.Path(sys.argv[2]))\n"
    )

    def write(directory: Path) -> None:
        subprocess.run(
            [sys.executable, "-c", code, name, str(directory)],
            check=True, capture_output=True, cwd=ROOT, env=_environment(),
        )  # fmt: skip

    return write


def _official(name: str) -> Run:
    flags = (f"--experiment=official/{name}", "--config_file=small.yaml")
    return Run(flags, write_sample(name))


RUNS = {
    "digits": Run(("--experiment=digits", "--train_steps=100", _WHOLE_SCHEDULE)),
    "digits_pipeline": Run(
        ("--experiment=digits", "--train_steps=50", "--task.train_data.on_device=false",
         "--task.model.dropout_rate=0.3", _WHOLE_SCHEDULE),
    ),
    "digits_mlp": Run(("--experiment=digits_mlp", "--train_steps=100")),
    "resnet_cifar": Run(
        ("--experiment=resnet_cifar", "--data_dir=.", "--train_steps=30",
         "--task.train_data.global_batch_size=16", "--task.validation_data.global_batch_size=32"),
        write_cifar,
    ),
    "ncf_movielens": Run(("--experiment=ncf_movielens", _SYNTHETIC, "--train_steps=30")),
    "transformer_multi30k": Run(
        ("--experiment=transformer_multi30k", _SYNTHETIC, "--train_steps=30", "--mode=train",
         "--task.train_data.global_batch_size=16",
         "--trainer.optimizer_config.learning_rate.power_linear.total_decay_steps=7000"),
    ),
    "tfrecord": Run(("--experiment=records.yaml",), write_records),
    "mirrored": Run(
        ("--experiment=digits", f"--config_file={ROOT}/configs/runtime/mirrored_2cpu.yaml",
         "--train_steps=50", _WHOLE_SCHEDULE),
    ),
    "two_workers": Run(
        ("--experiment=digits", "--distribution_strategy=multi_worker_mirrored",
         "--train_steps=50", _WHOLE_SCHEDULE),
        launch=("--workers=2",),
    ),
    "official_tagging": _official("bert/tagging"),
    "official_mock": _official("mock"),
    "official_resnet": _official("resnet_imagenet"),
    "official_unet3d": _official("seg_unet3d_test"),
}  # fmt: skip


def fingerprint(run: Run) -> dict[str, Any]:
    """Runs an experiment and returns its last fingerprints: `step`, `weights`, `state`.

    Raises:
        RuntimeError: The run failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        run.write_data(Path(directory))
        completed = subprocess.run(
            run.command("out"), cwd=directory, env=_environment(), timeout=SECONDS,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if completed.returncode:
            raise RuntimeError(f"exit code {completed.returncode}\n{completed.stderr[-2000:]}")
        lines = Path(directory, "out/checkpoints/fingerprints.jsonl").read_text().splitlines()
        record: dict[str, Any] = json.loads(lines[-1])
        return {key: record[key] for key in ("step", "weights", "state")}


def _environment() -> dict[str, str]:
    paths = [f"{ROOT}/src", str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TF_CPP_MIN_LOG_LEVEL": "3"}


def main() -> int:
    """Writes or compares fingerprints; returns 1 if a run differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=[*RUNS], metavar="NAME")
    flags = parser.parse_args()
    before = json.loads(flags.file.read_text()) if flags.file.exists() else {}
    if flags.action == "compare" and not before:
        parser.error(f"{flags.file} has no fingerprints; write them first")
    failed = False
    for name in flags.only:
        start = time.monotonic()
        try:
            digests = fingerprint(RUNS[name])
        except (RuntimeError, subprocess.SubprocessError) as error:
            verdict, failed = f"FAILED {error}", True
        else:
            verdict = f"step {digests['step']}: {digests['weights'][:16]} {digests['state'][:16]}"
            if flags.action == "compare":
                same = before.get(name) == digests
                failed |= not same
                verdict += " equal" if same else f" DIFFERS from {before.get(name)}"
            else:
                before[name] = digests
        print(f"{name:22} {time.monotonic() - start:5.0f} s  {verdict}", flush=True)
    if flags.action == "write":
        flags.file.parent.mkdir(parents=True, exist_ok=True)
        flags.file.write_text(json.dumps(before, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
