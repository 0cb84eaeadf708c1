"""TensorFlow errors caused by a lost worker are distinguished from other errors."""

import socket
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute import failure_detection
from orbit_runner.distribute.cluster.addresses import Liveness
from orbit_runner.distribute.cluster.description import Member, MemberLost
from orbit_runner.distribute.failure_detection import failure_detection_scope
from orbit_runner.errors import RunnerError
from tests.clusters.members import free_ports

_ABORTED = "Collective ops is aborted by: recvmsg:Connection reset by peer\nAdditional information"
_SILENT = (
    "Collective ops is aborted by: Error reported from /job:worker/task:2: The following tasks are "
    "unhealthy (stopped sending heartbeats)\n"
)
_LEADER = "Collective ops is aborted by: Deadline Exceeded\n\nRPC: /tensorflow.CoordinationService"


class _Resolver:
    task_type, task_id = "worker", 1


@pytest.fixture
def strategy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Worker 1 of three: nothing listens at the address of worker 0, but at that of worker 2."""
    closed, open_port = free_ports(2)
    there = socket.create_server(("127.0.0.1", open_port))
    members = [
        Member("worker", 0, f"127.0.0.1:{closed}"),
        Member("worker", 2, f"127.0.0.1:{open_port}"),
    ]
    monkeypatch.setattr(failure_detection, "_other_workers", lambda strategy: members)
    fake = tf.distribute.get_strategy()
    monkeypatch.setattr(type(fake), "cluster_resolver", _Resolver(), raising=False)
    yield fake
    there.close()


def _raised(strategy: Any, error: Exception) -> Exception:
    with pytest.raises(Exception) as caught, failure_detection_scope(strategy, RuntimeConfig()):  # noqa: PT011
        raise error
    return caught.value


@pytest.mark.parametrize("kind", [tf.errors.UnavailableError, tf.errors.InternalError])
def test_error_names_the_worker_that_does_not_listen(strategy: Any, kind: type) -> None:
    error = _raised(strategy, kind(None, None, _ABORTED))

    assert isinstance(error, MemberLost)
    assert str(error).startswith("worker 1: worker 0 (127.0.0.1:")
    assert "worker 2" not in str(error)
    assert "recvmsg:Connection reset by peer" in str(error)


@pytest.mark.parametrize(("text", "who"), [(_SILENT, "worker 2"), (_LEADER, "worker 0")])
def test_error_names_the_unresponsive_worker(
    strategy: Any, monkeypatch: pytest.MonkeyPatch, text: str, who: str
) -> None:
    monkeypatch.setattr(failure_detection, "probe", lambda *_: Liveness.ALIVE)
    error = _raised(strategy, tf.errors.UnavailableError(None, None, text))

    assert isinstance(error, MemberLost)
    assert str(error).startswith(f"worker 1: {who} (")


def test_failed_save_after_a_worker_loss_is_reported_as_loss(strategy: Any) -> None:
    failed = RunnerError("cannot save")
    failed.__cause__ = tf.errors.InternalError(None, None, _ABORTED)

    assert isinstance(_raised(strategy, failed), MemberLost)


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.InternalError(None, None, "failed to launch kernel on /job:worker/task:1/GPU:0"),
        tf.errors.InvalidArgumentError(None, None, _ABORTED),
        RunnerError("something else"),
        ValueError(_ABORTED),
    ],
)
def test_unrelated_errors_are_raised_unchanged(strategy: Any, error: Exception) -> None:
    assert _raised(strategy, error) is error
