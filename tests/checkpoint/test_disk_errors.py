"""Full disks and failed saves: one immediate message that names the last intact checkpoint."""

import errno
import resource
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.disk_errors import SaveError, disk_error_scope
from orbit_runner.checkpoint.manager import RunConditions, record_of
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.run_directory.run_lock import RunLock
from orbit_runner.train import loop
from orbit_runner.train.error_messages import error_message_scope
from orbit_runner.train.loop import build_controller
from orbit_runner.train.request import RunRequest
from orbit_runner.train.run_builder import build_run
from tests.support.problems import raises
from tests.support.toy import make_strategy, state_of, toy_config, toy_task

COMMAND = [
    sys.executable, "-m", "orbit_runner", "--experiment=digits_mlp", "--train_steps=200",
    "--task.model.hidden_units=[64]", "--trainer.checkpoint_interval=20", "--model_dir=a",
    "--trainer.max_to_keep=50", "--mode=train",
]  # fmt: skip


@pytest.mark.slow
def test_file_size_limit_ends_the_run_with_one_message(tmp_path):
    completed = subprocess.run(
        COMMAND,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)),
    )
    assert completed.returncode == 1, completed.stderr
    # No traceback or log may bury the message.
    assert "Traceback" not in completed.stderr
    assert "ERROR" not in completed.stderr
    problem, left = completed.stderr.strip().splitlines()[-2:]
    assert problem == "runner: cannot save a checkpoint in a/checkpoints: File too large"
    assert left == "there is no checkpoint yet; free up disk space and start the run again"


_TF_FULL = "a/train/events; No space left on device"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "a/b"),
        tf.errors.ResourceExhaustedError(None, None, _TF_FULL),
        tf.errors.InternalError(None, None, "Disk quota exceeded"),
    ],
)
def test_full_disk_is_recognized_from_every_error_type(error, tmp_path):
    scopes = disk_error_scope(tmp_path), error_message_scope(toy_config())
    with raises("save-failed", kind=SaveError) as caught, scopes[0], scopes[1]:
        raise error
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.EROFS, "Read-only file system", "a"),
        tf.errors.UnknownError(None, None, "a; Stale file handle"),
    ],
)
def test_broken_disk_is_not_called_full(error, tmp_path):
    with raises("save-failed", kind=SaveError), disk_error_scope(tmp_path):
        raise error


def test_error_of_a_file_of_the_run_names_it(tmp_path):
    missing = tmp_path / "a" / "file"
    with raises("save-failed", kind=SaveError), disk_error_scope(tmp_path):
        missing.write_text("")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_save_does_not_create_a_removed_run_directory_again(tmp_path, monkeypatch, asynchronous):
    run = tmp_path / "run"
    state = state_of(toy_config(), make_strategy("one_device"))
    folder = CheckpointFolder(run / "checkpoints")
    writer = CheckpointWriter(state.checkpoint(), folder, asynchronous=asynchronous)

    def save():
        writer.write(record_of(state, RunConditions()))
        writer.sync()

    def begin_and_remove(step):
        path = CheckpointFolder.begin_write(folder, step)
        run.rename(tmp_path / "removed")
        return path

    with RunLock(run):
        monkeypatch.setattr(folder, "begin_write", begin_and_remove)
        with pytest.raises(SaveError):
            save()
        monkeypatch.undo()
        with pytest.raises(SaveError):
            save()
    assert not run.exists()


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file"), ValueError("No space left")]
)
def test_errors_unrelated_to_the_disk_pass_through_unchanged(error, tmp_path):
    with pytest.raises(type(error)), disk_error_scope(tmp_path):
        raise error


def test_failed_asynchronous_save_stops_training_immediately(tmp_path):
    config = toy_config(
        trainer__train_steps=200,
        trainer__checkpoint_interval=10,
        trainer__validation_interval=200,
        trainer__steps_per_loop=1,
    )

    def wait(logs):
        if session.step == 12:
            session.checkpoints.sync()
            # A file cannot be renamed onto a directory.
            (tmp_path / "checkpoints" / "ckpt-20.data-00000-of-00001").mkdir()
        end = time.monotonic() + 60.0
        while session.step == 21 and session.checkpoints._writer._failure is None:
            assert time.monotonic() < end
            time.sleep(0.01)

    strategy = make_strategy("one_device")
    session = build_run(
        RunRequest(
            config=config,
            task=toy_task(config),
            mode="train",
            model_dir=tmp_path,
            strategy=strategy,
            asynchronous=True,
            train_actions=[wait],
        )
    )
    controller = build_controller(session)
    session.restore_or_initialize()
    with strategy.scope(), raises("save-failed", kind=SaveError) as caught:
        loop.train(session, controller, evaluates=False)
    assert "the checkpoint of step 10 is intact" in str(caught.value)
    assert session.step in (21, 22)
