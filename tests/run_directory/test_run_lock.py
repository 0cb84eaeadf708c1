"""Only one process at a time trains in a directory: real processes, real kills."""

import contextlib
import errno
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import threading

import pytest

from orbit_runner.errors import RunnerError
from orbit_runner.run_directory import run_lock
from orbit_runner.run_directory.run_lock import RunLock
from orbit_runner.utils.files import create_directory, write_atomically
from tests.support.problems import raises
from tests.support.run_directories import HOLD, lock_holder

TRY = """\
import sys
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.run_lock import RunLock
try:
    RunLock(sys.argv[1]).acquire()
except RunnerError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def holder():
    """Starts a process that holds the lock of a directory until its input ends."""
    with contextlib.ExitStack() as stack:
        yield lambda folder: stack.enter_context(lock_holder(folder))


def attempt(folder):
    """Tries to take the lock in another process."""
    command = [sys.executable, "-c", TRY, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def record(folder):
    return json.loads((folder / ".lock").read_text())


def test_second_process_is_rejected_with_details_of_the_first(holder, tmp_path):
    first = holder(tmp_path / "new" / "folder")
    second = attempt(tmp_path / "new" / "folder")
    assert second.returncode == 2, second.stderr
    for part in (
        f"another process is training in {tmp_path / 'new' / 'folder'}",
        f"process {first.pid} on {os.uname().nodename}, since 20",
        str(tmp_path / "new" / "folder"),
        "wait for it to finish, stop it, or use another --model_dir",
    ):
        assert part in second.stdout
    assert sys.executable in second.stdout.splitlines()[2]
    assert record(tmp_path / "new" / "folder")["process"] == first.pid


def test_symlink_to_a_directory_shares_its_lock(holder, tmp_path):
    holder(tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert attempt(tmp_path / "b").returncode == 2
    assert attempt(tmp_path / "a" / ".." / "a").returncode == 2


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_lock_is_released_when_its_process_ends(holder, end, tmp_path):
    first = holder(tmp_path)
    if end is None:
        first.communicate("")
    else:
        first.send_signal(end)
    # Without waiting: the next may start before the kernel has cleaned up the first.
    second = attempt(tmp_path)
    assert second.returncode == 0, second.stdout
    assert record(tmp_path)["process"] != first.pid


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "é",
        '{"process": 1, "host": "another"}',
        f'{{"process": {10**30}, "host": "{os.uname().nodename}"}}',
    ],
)
def test_lock_works_whatever_the_lock_file_contains(text, tmp_path):
    (tmp_path / ".lock").write_text(text, encoding="latin-1")
    assert attempt(tmp_path).returncode == 0
    with (tmp_path / ".lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (tmp_path / ".lock").write_text(text, encoding="latin-1")
        second = attempt(tmp_path)
    assert second.returncode == 2, second.stderr
    assert "another process is training in" in second.stdout


def test_previous_holder_is_not_mistaken_for_the_current_one(tmp_path):
    """A process has the lock but has not recorded it yet: the file names one that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    before = {"process": ended.pid, "host": os.uname().nodename, "since": "then", "command": "c"}
    (tmp_path / ".lock").write_text(json.dumps(before))
    file = (tmp_path / ".lock").open("r+")
    fcntl.flock(file, fcntl.LOCK_EX)
    free = threading.Timer(0.5, file.close)
    free.start()
    assert attempt(tmp_path).returncode == 0
    free.join()


def test_lock_is_reentrant_within_a_process(tmp_path):
    with RunLock(tmp_path):
        with RunLock(str(tmp_path)):
            pass
        (tmp_path / "link").symlink_to(tmp_path)
        with RunLock(tmp_path / "link"):
            pass
        assert attempt(tmp_path).returncode == 2
    assert attempt(tmp_path).returncode == 0


def test_released_lock_file_remains_and_is_marked_released(tmp_path):
    with RunLock(tmp_path):
        assert "released" not in record(tmp_path)
    assert record(tmp_path)["process"] == os.getpid()
    assert "released" in record(tmp_path)


@pytest.mark.parametrize("through_link", [False, True])
def test_locked_directory_that_was_renamed_is_not_created_again(tmp_path, through_link):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    run = tmp_path / ("link" if through_link else "real") / "run"
    with RunLock(run):
        write_atomically(run / "evaluations" / "1.json", "{}")
        run.rename(tmp_path / "removed")
        for directory in (run, run / "evaluations", run / "a" / "b"):
            with pytest.raises(FileNotFoundError):
                create_directory(directory)
        with pytest.raises(FileNotFoundError):
            write_atomically(run / "evaluations" / "2.json", "{}")
        assert not run.exists()
        create_directory(tmp_path / "real" / "other" / "directory")

    write_atomically(run / "evaluations" / "2.json", "{}")
    assert (tmp_path / "removed" / "evaluations" / "1.json").exists()


def _forked(lock, folder, answers, waits, ends):
    """Runs as the child: reports whether it was rejected, then waits until the pipe is closed."""
    try:
        os.close(ends)
        lock.release()  # As at the end of a `with` block that it was forked in.
        try:
            RunLock(folder).acquire()
        except RunnerError:
            os.write(answers, b"refused")
        os.close(answers)
        os.read(waits, 1)
    finally:
        os._exit(0)


def test_forked_child_does_not_share_the_lock(tmp_path):
    asks, answers = os.pipe()
    waits, ends = os.pipe()
    lock = RunLock(tmp_path)
    lock.acquire()
    child = os.fork()
    if not child:
        _forked(lock, tmp_path, answers, waits, ends)
    os.close(answers)
    try:
        assert os.read(asks, 100) == b"refused"
        assert attempt(tmp_path).returncode == 2
        lock.release()
        # The child still lives, but does not keep the lock.
        assert attempt(tmp_path).returncode == 0
    finally:
        os.close(ends)
        os.waitpid(child, 0)
        os.close(waits)
        os.close(asks)


def test_child_that_outlives_a_killed_parent_does_not_keep_the_lock(tmp_path):
    fork = "import os\nif not os.fork():\n    sys.stdin.read()\n    os._exit(0)\n"
    code = HOLD.replace("print(", f"{fork}print(")
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=read, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    process.kill()
    process.wait()
    assert attempt(tmp_path).returncode == 0
    os.close(write)
    os.close(read)
    process.stdout.close()


def test_file_system_without_locks_gives_a_note(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="orbit_runner")

    def flock(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(run_lock.fcntl, "flock", flock)
    with RunLock(tmp_path):
        note = f"{tmp_path} cannot be locked ({os.strerror(errno.ENOLCK)}): make sure that no other"
        assert note in caplog.text
        assert record(tmp_path)["process"] == os.getpid()


@pytest.mark.parametrize("name", ["file", "file/below", ".lock"])
def test_unwritable_model_dir_is_rejected(name, tmp_path):
    if name == ".lock":
        (tmp_path / ".lock").mkdir()
        folder = tmp_path
    else:
        (tmp_path / "file").write_text("")
        folder = tmp_path / name
    with raises("not-writable", "--model_dir") as caught:
        RunLock(folder).acquire()
    assert caught.value.exit_code == 2
