"""TensorFlow errors caused by a lost worker are distinguished from other errors."""

import pytest
import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute import failure_detection
from orbit_runner.distribute.cluster.description import Member, MemberLost
from orbit_runner.distribute.failure_detection import failure_detection_scope
from orbit_runner.errors import RunnerError

_ABORTED = "Collective ops is aborted by: recvmsg:Connection reset by peer\nAdditional information"
_SILENT = (
    "Collective ops is aborted by: Error reported from /job:worker/task:2: The following tasks are "
    "unhealthy (stopped sending heartbeats)\n"
)


class _Resolver:
    task_type, task_id = "worker", 1


@pytest.fixture
def strategy(monkeypatch):
    """Worker 1 of three."""
    members = [Member("worker", 0, "a:1"), Member("worker", 2, "c:1")]
    monkeypatch.setattr(failure_detection, "_other_workers", lambda strategy: members)
    fake = tf.distribute.get_strategy()
    monkeypatch.setattr(type(fake), "cluster_resolver", _Resolver(), raising=False)
    return fake


def _raised(strategy, error):
    with pytest.raises(Exception) as caught, failure_detection_scope(strategy, RuntimeConfig()):  # noqa: PT011
        raise error
    return caught.value


@pytest.mark.parametrize("kind", [tf.errors.UnavailableError, tf.errors.InternalError])
@pytest.mark.parametrize(
    ("text", "who"),
    [(_ABORTED, "one of worker 0 (a:1), worker 2 (c:1)"), (_SILENT, "worker 2 (c:1)")],
)
def test_error_names_the_workers_that_may_be_lost(strategy, kind, text, who):
    error = _raised(strategy, kind(None, None, text))

    assert isinstance(error, MemberLost)
    assert str(error).startswith(f"worker 1: {who} was lost\n  ")
    assert text.partition(": ")[2].splitlines()[0][:30] in str(error)


def test_failed_save_after_a_worker_loss_is_reported_as_loss(strategy):
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
def test_unrelated_errors_are_raised_unchanged(strategy, error):
    assert _raised(strategy, error) is error
