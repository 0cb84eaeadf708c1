"""Memory and processor use in the records of training."""

import psutil
import pytest
import tensorflow as tf

from orbit_runner.train.records import SystemMetrics
from tests.support.digits import digits_config
from tests.support.toy import records, run, toy_config

_NAMES = {"system/memory_gib", "system/cpu_percent", "system/machine_memory_percent"}


def _system(record):
    return {name for name in record if name.startswith("system/")}


@pytest.mark.slow
def test_each_training_record_has_the_use_of_memory_and_processor(tmp_path):
    config = digits_config(
        trainer__steps_per_loop=60,
        trainer__checkpoint_interval=60,
        trainer__validation_interval=60,
    )
    run(config, tmp_path)
    trained = records(tmp_path, "train")
    assert [record["step"] for record in trained] == [15, 30, 45, 60]
    for record in trained:
        assert _system(record) == _NAMES
        assert 0.05 < record["system/memory_gib"] < psutil.virtual_memory().total / 2**30
        assert 0.0 < record["system/machine_memory_percent"] <= 100.0
        assert 0.0 <= record["system/cpu_percent"] <= 100.0 * (psutil.cpu_count() or 1) * 1.5
    assert trained[0]["system/cpu_percent"] > 0.0  # Tracing takes longer than the interval.
    (evaluated,) = records(tmp_path, "validation")
    assert not _system(evaluated)


def test_system_metrics_can_be_switched_off(tmp_path):
    run(toy_config(trainer__system_metrics=False), tmp_path, "train")
    assert not any(_system(record) for record in records(tmp_path, "train"))


def test_records_of_the_same_moment_share_the_values(monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    measure = SystemMetrics()
    first = measure()
    now = 0.05
    assert measure() is first
    now = 0.5
    assert measure() is not first


def test_memory_of_gpus_is_that_of_the_fullest_one_and_the_highest_peak(monkeypatch):
    gib = 2**30
    used = {
        "GPU:0": {"current": 3 * gib, "peak": 4 * gib},
        "GPU:1": {"current": 1 * gib, "peak": 6 * gib},
    }
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [*used])
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", used.__getitem__)
    metrics = SystemMetrics()()
    assert metrics["system/gpu_memory_gib"] == 3.0
    assert metrics["system/gpu_peak_memory_gib"] == 6.0
