"""Rehearsals of clusters: the formula against numbers computed by hand, and sizes against a run."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute import cross_device_ops, cross_device_utils

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.inspection.experiment import inspect_experiment
from orbit_runner.inspection.scale import ScaleRequest
from orbit_runner.inspection.schedule import Schedule
from orbit_runner.reporting.inspection import inspection_sections
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.step.results import forward_flops
from orbit_runner.train_lib import prepare, run_experiment
from tests.support.images import write_folder, write_records

SYNTHETIC = "configs/data/synthetic.yaml"


def inspect_cluster(request: ScaleRequest, experiment: str, *files: str, **settings: Any) -> Any:
    flags = {**settings, **request.settings()}
    texts = tuple((f"--{path}", path, str(value)) for path, value in flags.items())
    config = resolve(Request(experiment=experiment, config_files=files, flags=texts)).config
    return config, inspect_experiment(config, scale=request)


@pytest.mark.parametrize(
    ("members", "seconds"),
    # 12.5 GB at 12.5 GB/s, with a latency of 10 µs. A single worker sends nothing.
    [(1, 0.0), (2, 1.0 + 2e-5), (3, 4 / 3 + 4e-5), (512, 2 * 511 / 512 + 1022e-5)],
)
def test_ring_takes_the_time_of_the_textbook(members, seconds):
    assert ScaleRequest(members).ring_seconds(125 * 10**8) == pytest.approx(seconds)
    if members == 512:  # The replicas of a worker share its link.
        assert ScaleRequest(64, 8).ring_seconds(125 * 10**8) == pytest.approx(seconds)


@pytest.fixture(scope="module")
def digits():
    request = ScaleRequest(workers=2)
    config, inspection = inspect_cluster(request, "digits")
    return config, inspection


def test_digits_are_shared_by_two_workers(digits):
    config, inspection = digits
    assert isinstance(inspection.schedule, Schedule)

    assert inspection.batches["training"].tensors[0].shape == (32, 8, 8, 1)
    assert inspection.scale.examples_per_replica == inspection.scale.examples_per_worker == 32
    # As in one process: the first convolution has no gradient of its input.
    assert inspection.step_flops == 64 * (3 * forward_flops(inspection.layers) - 2 * 64 * 9 * 32)
    assert (
        inspection.schedule.epochs
        == inspection.schedule.train_steps / inspection.scale.steps_per_epoch
    )
    assert inspection.scale.steps_per_epoch * inspection.scale.examples_per_step == pytest.approx(
        1438
    )
    assert inspection.scale.gradient_bytes == 53002 * 4
    assert (inspection.scale.file_reading, inspection.scale.file_bytes_per_step) == ("memory", 0.0)
    assert inspection.scale.checkpoint_interval == config.trainer.checkpoint_interval


@pytest.mark.slow
def test_a_checkpoint_has_the_size_of_its_file(digits, tmp_path):
    flags = (("--x", "trainer.train_steps", "1"), ("--y", "trainer.train_epochs", "0"))
    config = resolve(Request(experiment="digits", flags=flags)).config
    strategy, task = prepare(config, str(tmp_path))
    run_experiment(strategy, task, "train", config, str(tmp_path))
    (written,) = (tmp_path / "checkpoints").glob("*.data-*")

    # The file also has the structure of the checkpoint, as text.
    assert 0 <= written.stat().st_size - digits[1].scale.checkpoint_bytes < 16_384


@pytest.mark.slow
def test_gradients_are_those_that_tensorflow_reduces(tmp_path, monkeypatch):
    reduced: list[int] = []
    reduce = cross_device_ops.CollectiveAllReduce._all_reduce

    def record(self: Any, op: Any, value: Any, replica: int, options: Any) -> Any:
        dense, _, sparse, _ = cross_device_utils.split_by_sparsity(tf.nest.flatten(value))
        if replica == 0:
            rows = [part for slices in sparse for part in (slices.values, slices.indices)]
            reduced.append(_bytes([*dense, *rows]))
        return reduce(self, op, value, replica, options)

    monkeypatch.setattr(cross_device_ops.CollectiveAllReduce, "_all_reduce", record)
    settings = {"trainer.train_steps": 1, "trainer.train_epochs": 0}
    _, inspection = inspect_cluster(ScaleRequest(workers=2), "ncf_movielens", SYNTHETIC, **settings)
    mirrored = {"runtime.distribution_strategy": "mirrored", "runtime.num_virtual_devices": 2}
    flags = tuple((f"--{p}", p, str(v)) for p, v in {**settings, **mirrored}.items())
    request = Request(experiment="ncf_movielens", config_files=(SYNTHETIC,), flags=flags)
    config = resolve(request).config
    strategy, task = prepare(config, str(tmp_path))
    run_experiment(strategy, task, "train", config, str(tmp_path))

    assert (
        inspection.memory.gradients == inspection.scale.gradient_bytes < inspection.memory.weights
    )
    assert set(reduced) == {inspection.scale.gradient_bytes}


def _bytes(tensors: list[tf.Tensor]) -> int:
    return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["tfrecord", "image_folder"])
def test_sources_say_how_a_worker_reads_their_files(source, tmp_path):
    if source == "image_folder":
        paths = write_folder(tmp_path / "train", {"a": 8, "b": 8})
        write_folder(tmp_path / "test", {"a": 2, "b": 2}, first=20)
    else:
        paths = write_records(tmp_path, [8, 8], classes=2)
    settings: dict[str, Any] = {
        "task.model.input_size": [28, 28, 3],
        "task.model.num_classes": 2,
        "trainer.train_steps": 5,
        "trainer.train_epochs": 0,
    }
    for section in ("train_data", "validation_data"):
        settings[f"task.{section}.source"] = source
        settings[f"task.{section}.global_batch_size"] = 4
        if source == "image_folder":
            settings[f"task.{section}.data_dir"] = tmp_path
        else:
            settings[f"task.{section}.data_dir"] = "''"
            settings[f"task.{section}.input_path"] = tmp_path / "train*"
    size = sum(path.stat().st_size for path in paths)

    _, inspection = inspect_cluster(ScaleRequest(workers=2), "mnist", **settings)

    assert inspection.scale.file_bytes == size
    assert inspection.scale.file_reading == ("all" if source == "tfrecord" else "own")
    readers = 1 if source == "tfrecord" else 2
    assert inspection.scale.file_bytes_per_step == pytest.approx(size / 4 / readers)
    lines = [*section_lines([*inspection_sections(inspection)], 90)]
    assert any("reads all records" in line for line in lines) == (source == "tfrecord")


@pytest.mark.slow
def test_a_batch_of_tokens_is_shared_by_the_replicas():
    request = ScaleRequest(workers=2, gpus_per_worker=4)
    _, inspection = inspect_cluster(request, "transformer_multi30k", SYNTHETIC)

    inputs = inspection.batches["training"].tensors[0]
    rows, width = inputs.shape
    assert rows * width * 8 <= 2048 < (rows + 1) * width * 8
    assert inspection.scale.steps_per_epoch * inspection.scale.examples_per_step == pytest.approx(
        1024
    )


@pytest.mark.slow
def test_shards_of_logical_replicas_do_not_change_the_operations(digits):
    settings = {"runtime.logical_replicas": 8}
    _, inspection = inspect_cluster(ScaleRequest(workers=2), "digits", **settings)

    assert inspection.step_flops == digits[1].step_flops
    assert inspection.scale.gradient_bytes == 53002 * 4
