"""Rehearsals of clusters: formulas against numbers computed by hand, and facts against a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute import cross_device_ops, cross_device_utils

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.inspection.experiment import Inspection, inspect_experiment
from orbit_runner.inspection.scale import (
    ALL_EXAMPLES,
    IN_MEMORY,
    OWN_EXAMPLES,
    Gradient,
    ReplicaFacts,
    ScalePlan,
    ScaleRequest,
    plan_scale,
    real_settings,
    ring_all_gather_seconds,
    ring_all_reduce_seconds,
    tree_all_reduce_seconds,
)
from orbit_runner.inspection.schedule import Schedule
from orbit_runner.reporting.scale import scale_rows, scale_section
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.train_lib import prepare, run_experiment
from orbit_runner.utils.mfu import GPUS, peak_flops
from tests.support.array_records import write_array_file
from tests.support.images import write_folder, write_records

SYNTHETIC = "configs/data/synthetic.yaml"
DENSE = Gradient("dense", "float32", 8_000_000)
ROWS = Gradient("rows", "float32", 1_000_000, is_sparse=True)


FACTS = ReplicaFacts(gradients=[DENSE])


def plan(facts: ReplicaFacts = FACTS, **request: Any) -> ScalePlan:
    return plan_scale(ScaleRequest(**request), facts)


def inspect_cluster(request: ScaleRequest, experiment: str, *files: str, **settings: Any) -> Any:
    flags = {**settings, **real_settings(request)}
    texts = tuple((f"--{path}", path, str(value)) for path, value in flags.items())
    config = resolve(Request(experiment=experiment, config_files=files, flags=texts)).config
    return config, inspect_experiment(config, scale=request)


@pytest.mark.parametrize(
    ("members", "ring", "tree", "gather"),
    [
        # 1 GB at 1 GB/s, with a latency of 1 ms.
        (1, 0.0, 0.0, 0.0),
        (2, 1.0 + 0.002, 2.0 + 0.002, 1.0 + 0.001),
        (3, 4 / 3 + 0.004, 2.0 + 0.004, 2.0 + 0.002),
        (512, 2 * 511 / 512 + 1.022, 2.0 + 0.018, 511.0 + 0.511),
    ],
)
def test_collectives_take_the_time_of_the_textbook(
    members: int, ring: float, tree: float, gather: float
) -> None:
    link = (members, 1e9, 1e9, 1e-3)

    assert ring_all_reduce_seconds(*link) == pytest.approx(ring)
    assert tree_all_reduce_seconds(*link) == pytest.approx(tree)
    assert ring_all_gather_seconds(*link) == pytest.approx(gather)


def test_gigabits_of_a_worker_are_shared_by_its_replicas() -> None:
    found = plan(workers=64, gpus_per_worker=8, bandwidth_gbit=80)  # 10 GB/s

    assert found.replicas == 512
    assert found.ring_seconds == pytest.approx(2 * 511 / 512 * 0.8e-3 + 1022 * 10e-6)
    assert found.tree_seconds == pytest.approx(1.6e-3 + 18 * 10e-6)
    assert found.exchange_seconds == found.tree_seconds


def test_the_setting_for_a_ring_selects_the_ring() -> None:
    facts = ReplicaFacts(gradients=[DENSE], all_reduce="ring")

    assert plan(facts, workers=64).exchange_seconds == plan(workers=64).ring_seconds


def test_a_single_worker_sends_nothing() -> None:
    found = plan(ReplicaFacts(gradients=[DENSE, ROWS], averaged_size=9), workers=1,
                 gpus_per_worker=8)  # fmt: skip

    assert (found.replicas, found.exchange_seconds, found.gather_seconds) == (8, 0, 0)
    assert ("sent in a step", "0 s") in [row[:2] for row in scale_rows(found)]


def test_sparse_gradients_and_averages_are_sent_besides_the_dense_ones() -> None:
    facts = ReplicaFacts(gradients=[DENSE, ROWS], averaged_size=1000)
    found = plan(facts, workers=4, bandwidth_gbit=8)  # 1 GB/s

    assert (found.dense_gradient_bytes, found.sparse_gradient_bytes) == (8_000_000, 1_000_000)
    assert found.gather_seconds == pytest.approx(3 * 1e-3 + 3 * 3 * 10e-6)
    assert found.average_seconds == pytest.approx(2e-6 + 4 * 10e-6)
    assert found.exchange_seconds == pytest.approx(
        12e-3 + 6 * 10e-6 + found.gather_seconds + found.average_seconds
    )


def test_logical_replicas_gather_the_sums_of_blocks() -> None:
    # 6 shards of a device are blocks of 2, so 3 sums; 4 shards are one block.
    three = plan(ReplicaFacts(gradients=[DENSE], logical_replicas=24), workers=4)
    one = plan(ReplicaFacts(gradients=[DENSE], logical_replicas=16), workers=4)

    assert (three.gathered_bytes, one.gathered_bytes) == (24_000_000, 8_000_000)
    assert one.exchange_seconds == pytest.approx(3 * (10e-6 + 8e6 / 12.5e9))
    assert one.ring_seconds is None


@pytest.mark.parametrize(
    ("reading", "per_step"), [(ALL_EXAMPLES, 1e6), (OWN_EXAMPLES, 1e5), (IN_MEMORY, 0), ("", None)]
)
def test_a_worker_reads_all_files_or_its_share(reading: str, per_step: float | None) -> None:
    facts = ReplicaFacts(
        examples_per_step=100.0, steps_per_epoch=50.0, file_size=50_000_000, file_reading=reading
    )

    assert plan(facts, workers=10).file_bytes_per_step == per_step


def test_time_follows_from_the_peak_of_a_gpu_or_from_a_measurement() -> None:
    facts = ReplicaFacts(gradients=[DENSE], flops=10**12, measured_seconds=0.5, train_steps=100)
    peak = dataclasses.replace(facts, peak_flops=1e14)
    measured, computed = (plan(one, workers=2) for one in (facts, peak))

    assert (measured.compute_source, measured.compute_seconds) == ("measured", 0.5)
    assert (computed.compute_source, computed.compute_seconds) == ("peak", 0.01)
    step = 0.01 + computed.exchange_seconds
    assert computed.steps_per_day == pytest.approx(86400 / step)
    assert computed.run_seconds == pytest.approx(100 * step)
    texts = {row[0]: row[1] for row in scale_rows(computed)}
    assert texts["a step"].startswith("≥ ")
    assert texts["steps of a day"].startswith("≤ ")
    assert plan(workers=2).step_seconds is None


def test_every_gpu_has_a_peak() -> None:
    assert all(peak_flops(name, "float32") for name in GPUS)
    assert len({peak_flops(name, "float32") for name in GPUS}) == len(GPUS) - 1  # H200 and H100.


def test_lines_of_a_rehearsal_fit_the_terminal() -> None:
    facts = ReplicaFacts(gradients=[DENSE, ROWS], averaged_size=1000, examples_per_step=5.5,
                         steps_per_epoch=3.0, flops=10, peak_flops=1e12)  # fmt: skip
    lines = [*section_lines([scale_section(plan(facts, workers=1000, gpus_per_worker=8))], 90)]

    assert max(len(line) for line in lines if "runner " not in line) <= 90


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Inspection]:
    request = ScaleRequest(workers=2)
    config, found = inspect_cluster(request, "digits")
    return config, found


def test_digits_are_shared_by_two_workers(digits: tuple[Any, Inspection]) -> None:
    config, found = digits
    assert found.scale is not None
    assert isinstance(found.schedule, Schedule)

    assert found.batches["training"].tensors[0].shape == (32, 8, 8, 1)
    assert found.scale.examples_per_replica == found.scale.examples_per_worker == 32
    assert found.scale.train_steps == found.schedule.train_steps
    assert found.schedule.epochs == found.schedule.train_steps / found.scale.steps_per_epoch
    assert found.scale.examples_per_epoch == pytest.approx(1438)
    assert found.scale.dense_gradient_bytes == 53002 * 4
    assert found.scale.batch_bytes_per_worker == 32 * (64 + 4)
    assert found.scale.flops == found.step_flops
    assert found.scale.checkpoint_interval == config.trainer.checkpoint_interval


@pytest.mark.slow
def test_a_checkpoint_has_the_size_of_its_file(
    digits: tuple[Any, Inspection], tmp_path: Path
) -> None:
    flags = (("--x", "trainer.train_steps", "1"), ("--y", "trainer.train_epochs", "0"))
    config = resolve(Request(experiment="digits", flags=flags)).config
    strategy, task = prepare(config, str(tmp_path))
    run_experiment(strategy, task, "train", config, str(tmp_path))
    (written,) = (tmp_path / "checkpoints").glob("*.data-*")

    assert digits[1].scale is not None
    # The file also has the structure of the checkpoint, as text.
    assert 0 <= written.stat().st_size - digits[1].scale.checkpoint_bytes < 16_384


@pytest.mark.slow
def test_gradients_are_those_that_tensorflow_reduces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduced: list[tuple[int, int]] = []
    reduce = cross_device_ops.CollectiveAllReduce._all_reduce

    def record(self: Any, op: Any, value: Any, replica: int, options: Any) -> Any:
        dense, _, sparse, _ = cross_device_utils.split_by_sparsity(tf.nest.flatten(value))
        if replica == 0:
            rows = [part for one in sparse for part in (one.values, one.indices)]
            reduced.append((_bytes(dense), _bytes(rows)))
        return reduce(self, op, value, replica, options)

    monkeypatch.setattr(cross_device_ops.CollectiveAllReduce, "_all_reduce", record)
    settings = {"trainer.train_steps": 1, "trainer.train_epochs": 0}
    _, found = inspect_cluster(ScaleRequest(workers=2), "ncf_movielens", SYNTHETIC, **settings)
    mirrored = {"runtime.distribution_strategy": "mirrored", "runtime.num_virtual_devices": 2}
    flags = tuple((f"--{p}", p, str(v)) for p, v in {**settings, **mirrored}.items())
    request = Request(experiment="ncf_movielens", config_files=(SYNTHETIC,), flags=flags)
    config = resolve(request).config
    strategy, task = prepare(config, str(tmp_path))
    run_experiment(strategy, task, "train", config, str(tmp_path))

    assert len(found.scale.sparse_gradients) == 4
    sent = found.scale.dense_gradient_bytes + found.scale.sparse_gradient_bytes
    assert found.memory.gradients == sent < found.memory.weights
    assert reduced
    assert set(reduced) == {(found.scale.dense_gradient_bytes, found.scale.sparse_gradient_bytes)}


def _bytes(tensors: list[tf.Tensor]) -> int:
    return sum(one.shape.num_elements() * one.dtype.size for one in tensors)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["tfrecord", "array_record", "image_folder"])
def test_sources_say_how_a_worker_reads_their_files(source: str, tmp_path: Path) -> None:
    if source == "image_folder":
        paths = write_folder(tmp_path / "train", {"a": 8, "b": 8})
        write_folder(tmp_path / "test", {"a": 2, "b": 2}, first=20)
    else:
        write = {"write": write_array_file} if source == "array_record" else {}
        paths = write_records(tmp_path, [8, 8], classes=2, **write)
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

    _, found = inspect_cluster(ScaleRequest(workers=2), "mnist", **settings)

    assert found.scale.file_bytes == size
    assert found.scale.file_reading == (ALL_EXAMPLES if source == "tfrecord" else OWN_EXAMPLES)
    readers = 1 if source == "tfrecord" else 2
    assert found.scale.file_bytes_per_step == pytest.approx(size / 4 / readers)
    (row,) = (row for row in scale_rows(found.scale) if row[0] == "files of a worker")
    assert ("every worker reads all TFRecord files" in row[2]) == (source == "tfrecord")


@pytest.mark.slow
def test_a_batch_of_tokens_is_shared_by_the_replicas() -> None:
    request = ScaleRequest(workers=2, gpus_per_worker=4)
    _, found = inspect_cluster(request, "transformer_multi30k", SYNTHETIC)

    inputs = found.batches["training"].tensors[0]
    rows, width = inputs.shape
    assert rows * width * 8 <= 2048 < (rows + 1) * width * 8
    assert found.scale.steps_per_epoch * found.scale.examples_per_step == pytest.approx(1024)


@pytest.mark.slow
def test_shards_of_logical_replicas_do_not_change_the_operations(
    digits: tuple[Any, Inspection],
) -> None:
    settings = {"runtime.logical_replicas": 8}
    _, found = inspect_cluster(ScaleRequest(workers=2), "digits", **settings)

    assert found.step_flops == digits[1].step_flops
    assert found.scale.gathered_bytes == 53002 * 4
