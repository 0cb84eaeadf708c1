"""Filters of the loggers of libraries."""

import pytest
import tensorflow as tf

from orbit_runner.distribute.parameter_servers import _drop_coordinator_log


def test_coordinator_log_is_dropped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorflow = tf.get_logger()
    monkeypatch.setattr(tensorflow, "filters", [])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    for _ in range(3):
        _drop_coordinator_log()
    assert len(tensorflow.filters) == 1
