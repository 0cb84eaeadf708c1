"""Measures the time to the first step of a run on TFRecords that resumes at a late step.

Each start builds the network and the pipeline again, traces the step, and runs one step: everything
from the restored checkpoint to the first step. The files contain 20,000 synthetic images. Their
index is cached.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf

from benchmarks.harness import Figure, alternate
from benchmarks.networks import build_run
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.train.controller import build_controller, quiet_orbit_scope

TITLE = "first step on TFRecords, from a late step / from step 0"
UNIT = "starts/s"
_FILES, _RECORDS = 16, 1250
_STEPS = (0, 10_000, 100_000)


def _write_files(folder: Path) -> None:
    drawn = np.random.default_rng(0)
    for number in range(_FILES):
        with tf.io.TFRecordWriter(str(folder / f"train-{number:02}")) as writer:
            for label in drawn.integers(0, 10, _RECORDS):
                image = drawn.integers(0, 256, (32, 32, 3)).astype(np.uint8)
                writer.write(_example(tf.io.encode_png(image).numpy(), int(label)))


def _example(encoded: bytes, label: int) -> bytes:
    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded]))
    number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    features = tf.train.Features(feature={"image/encoded": image, "image/class/label": number})
    return tf.train.Example(features=features).SerializeToString()


def _config(folder: Path) -> ExperimentConfig:
    data = "{source: tfrecord, data_dir: %s, input_path: 'train-*', shuffle_buffer_size: 1000}"
    text = (
        "{task: {model: {depth: 8, num_classes: 10}, "
        f"train_data: {data % folder}, validation_data: {data % folder}}}}}"
    )
    return resolve(Request(experiment="resnet_cifar", params_overrides=(text,))).config


def _start(config: ExperimentConfig, folder: Path, step: int) -> Callable[[], int]:
    def run() -> int:
        session = build_run(config, folder / str(step), asynchronous=True)
        session.state.global_step.assign(step)
        controller = build_controller(session, save_summary=False)
        with quiet_orbit_scope(), session.strategy.scope():
            controller.train(step + 1, checkpoint_at_completion=False)
        return 1

    return run


def measure(rounds: int = 9) -> list[Figure]:
    """Returns the figures relative to a start from step 0."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": name}):
            _write_files(folder)
            config = _config(folder)
            contenders = {f"from step {step:,}": _start(config, folder, step) for step in _STEPS}
            return alternate(contenders, baseline="from step 0", rounds=rounds)
