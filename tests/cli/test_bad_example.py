"""From a loss that is NaN to a run without the example that caused it, by the commands advised."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

_MODULE = """
import numpy as np

def load():
    x = np.abs(np.random.default_rng(0).normal(size=(400, 4))).astype("float32") + 0.1
    y = (x.sum(1) > 3).astype("int32")
    x[123, 2] = 0
    return {"x": x, "y": y}

def build():
    import tensorflow as tf
    import tf_keras
    layers = tf_keras.layers
    return tf_keras.Sequential([layers.Lambda(tf.math.log, name="log"), layers.Dense(2)])
"""
_EXPERIMENT = """
task:
  name: keras
  model: bad_example:build
  loss: {class_name: SparseCategoricalCrossentropy, config: {from_logits: true}}
  train_data: {source: arrays, function: bad_example:load, global_batch_size: 16}
trainer:
  train_steps: 60
  steps_per_loop: 60
  checkpoint_interval: 10
  optimizer_config:
    optimizer: {type: adam}
    learning_rate: {type: constant, constant: {learning_rate: 0.01}}
runtime: {distribution_strategy: one_device, intra_op_threads: 1}
"""


@pytest.mark.slow
def test_branch_without_the_bad_example_equals_a_run_from_scratch_without_it(cli, tmp_path):
    (tmp_path / "bad_example.py").write_text(_MODULE)
    (tmp_path / "e.yaml").write_text(_EXPERIMENT)
    run = ("run", "--experiment=e.yaml", "--mode=train")

    failed = cli(*run, "--model_dir=a")
    assert failed.returncode == 3, failed.stderr
    advice = re.search(r"`(runner replay .*?)`", failed.stderr)
    assert advice is not None, failed.stderr
    replayed = cli(*shlex.split(advice[1])[1:])
    assert replayed.returncode == 0, replayed.stderr
    step = re.search(r"^step (\d+) of ", replayed.stdout, re.M)
    assert step is not None, replayed.stdout
    assert _fingerprints(tmp_path / "a")[-1]["step"] < int(step[1])
    assert "first bad value: infinity, layer log, op Log" in replayed.stdout
    branch = shlex.split(replayed.stdout.splitlines()[-1])
    assert branch[-1] == "--task.train_data.exclude=[123]"

    branched = cli(*branch[1:])
    assert branched.returncode == 0, branched.stderr
    scratch = cli(*run, "--model_dir=b", branch[-1])
    assert scratch.returncode == 0, scratch.stderr
    last = _fingerprints(tmp_path / "b")[-1]
    assert last["step"] == 60
    assert last == _fingerprints(tmp_path / "a-without")[-1]


def _fingerprints(run: Path) -> list[dict[str, object]]:
    lines = (run / "checkpoints" / "fingerprints.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
