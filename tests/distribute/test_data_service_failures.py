"""Detecting the loss of a data service within one process; `tests/clusters` has whole runs."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.data.service import apply_on_services
from orbit_runner.distribute import data_service_failures
from orbit_runner.distribute.cluster.description import MemberLost
from orbit_runner.distribute.failure_detection import failure_detection_scope
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.launch.members import free_ports
from tests.support.problems import raises

service = tf.data.experimental.service


class Server:
    """A data service in this process."""

    def __init__(self, port: int) -> None:
        self.dispatcher = service.DispatchServer(service.DispatcherConfig(port=port))
        self.worker = service.WorkerServer(service.WorkerConfig(f"localhost:{port}"))

    def stop(self) -> None:
        self.worker._stop()
        self.dispatcher._stop()


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def _numbers(port: int) -> tf.data.Dataset:
    numbers = tf.data.Dataset.range(10**9)
    return apply_on_services(
        [f"grpc://127.0.0.1:{port}"], numbers, lambda made: made.map(lambda n: n * 2)
    )


@tf.function
def _take(iterator: Any, count: tf.Tensor) -> tf.Tensor:
    total = tf.constant(0, tf.int64)
    for _ in tf.range(count):
        total += next(iterator)
    return total


def _take_on(port: int, server: Server, *, restart: bool) -> None:
    """Takes numbers from a service, stops the service, and continues to take numbers."""
    with _watched(port):
        iterator = iter(_numbers(port))
        assert int(_take(iterator, tf.constant(3))) == 6
        server.stop()
        again = Server(port) if restart else None
        for _ in itertools.count():
            _take(iterator, tf.constant(1000))
    del again


def _watched(port: int, silence: float = 600.0) -> Any:
    return failure_detection_scope(tf.distribute.get_strategy(), [f"127.0.0.1:{port}"], silence)


def test_function_waiting_for_a_lost_service_raises_member_lost(port: int) -> None:
    with raises("member-lost"):
        _take_on(port, Server(port), restart=False)


def test_service_restarted_during_a_run_is_reported(port: int) -> None:
    with raises("member-lost"):
        _take_on(port, Server(port), restart=True)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("its own"),
        SettingError("a.b", "its own"),
        tf.errors.NotFoundError(None, None, "no such file"),
        tf.errors.InvalidArgumentError(None, None, "its own"),
    ],
)
def test_unrelated_errors_are_raised_unchanged(port: int, error: Exception) -> None:
    server = Server(port)
    with pytest.raises(type(error)) as caught, _watched(port):
        raise error
    assert caught.value is error
    server.stop()


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The watches that start during a test."""
    begun, enter = list[Any](), data_service_failures._Watch.__enter__
    monkeypatch.setattr(
        data_service_failures._Watch,
        "__enter__",
        lambda watch: (begun.append(watch), enter(watch))[1],
    )
    return begun


def _raise_after_the_notice(port: int, error: Exception, watches: list[Any]) -> None:
    with _watched(port):
        while not watches[0].reason:
            time.sleep(0.02)
        raise error


@pytest.mark.sample(1)
@pytest.mark.parametrize("code", [3, 143])
def test_error_with_another_cause_is_unchanged_after_a_service_loss(
    port: int, code: int, watches: list[Any]
) -> None:
    error = RunnerError("its own")
    error.exit_code = code
    with pytest.raises(RunnerError) as caught:
        _raise_after_the_notice(port, error, watches)
    assert caught.value is error


def test_failed_save_after_a_service_loss_is_reported_as_loss(
    port: int, watches: list[Any]
) -> None:
    error = RunnerError("cannot save")
    error.exit_code = 1
    with raises("member-lost"):
        _raise_after_the_notice(port, error, watches)


def test_worker_lost_after_a_service_is_reported_as_service_loss(port: int) -> None:
    with raises("member-lost"), _watched(port):
        raise MemberLost("worker 1 was lost")


def test_error_before_a_detected_service_loss_is_reported_as_loss(port: int) -> None:
    with raises("member-lost"), _watched(port):
        raise tf.errors.UnavailableError(None, None, "collective ops is aborted by: worker 1")


@pytest.mark.slow
def test_library_caller_can_continue_and_exit_after_a_service_loss(port: int) -> None:
    text = f"""
import gc, sys
import tensorflow as tf
from orbit_runner.distribute.cluster.description import MemberLost
from tests.distribute.test_data_service_failures import Server, _numbers, _take, _watched
device = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [device] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
server = Server({port})

def train():
    data = strategy.distribute_datasets_from_function(lambda context: _numbers({port}))
    iterator = iter(data)
    step = tf.function(lambda: strategy.run(lambda x: x, args=(next(iterator),)))
    with _watched({port}):
        step()
        server.stop()
        while True:
            step()

try:
    train()
except MemberLost:
    print("lost", flush=True)
gc.collect()
print("goes on", flush=True)
"""
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, "lost\ngoes on\n"), done.stderr


def test_functions_run_normally_after_the_detection_scope(port: int) -> None:
    server = Server(port)
    with _watched(port):
        assert int(_take(iter(_numbers(port)), tf.constant(3))) == 6
    server.stop()
    own = iter(tf.data.Dataset.range(10))
    assert int(_take(own, tf.constant(3))) == 3
