"""The merged display, and the logs."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

from orbit_runner.launch.process import start_reader
from tests.support.launches import SECONDS, Launch

Start = Callable[..., Launch]


def test_chief_output_is_passed_to_stdout_unchanged(start: Start) -> None:
    say = "say('to stderr'); os.write(1, b'{\"a\": 1}\\n\\xff no newline'); exit(0)"
    launch = start({"worker 0": [say], "worker 1": ["print('of no account'); exit(0)"]})
    out, err = _bytes(launch)
    assert out == b'{"a": 1}\n\xff no newline'
    lines = sorted(err.decode().splitlines())
    assert lines == ["worker 0 │ to stderr", "worker 1 │ of no account"]
    log = (launch.folder / "logs" / "attempt-1" / "worker-0.log").read_bytes()
    assert sorted(log.splitlines()) == sorted([b"to stderr", b'{"a": 1}', b"\xff no newline"])


def _bytes(launch: Launch) -> tuple[bytes, bytes]:
    assert launch.process.stdout is not None
    assert launch.process.stderr is not None
    out = launch.process.stdout.buffer.read()
    err = launch.process.stderr.buffer.read()
    assert launch.process.wait() == 0
    return out, err


def test_members_continue_when_nobody_reads_their_output(start: Start) -> None:
    flood = "for _ in range(20000): print('x' * 50)\nexit(0)"
    launch = start({"worker 0": [flood], "worker 1": [flood]})
    assert launch.process.stdout is not None
    assert launch.process.stderr is not None
    launch.process.stdout.close()
    launch.process.stderr.close()
    assert launch.process.wait(SECONDS) == 0
    assert (launch.folder / "logs/attempt-1/worker-1.log").stat().st_size == 20000 * 51


def test_lines_of_several_processes_are_not_mixed(start: Start) -> None:
    shout = "for i in range(300): say(f'{ME} ' + 'y' * 200)\nexit(0)"
    launch = start({name: [shout] for name in ("worker 0", "worker 1", "worker 2")})
    assert launch.end() == 0
    lines = launch.err.splitlines()
    assert len(lines) == 900
    assert {line.partition(" │ ")[0] for line in lines} == {f"worker {i}" for i in range(3)}
    assert all(line == f"{line[:8]} │ {line[:8]} " + "y" * 200 for line in lines)


def test_tensorflow_startup_messages_appear_only_in_the_logs(start: Start) -> None:
    lines = [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1795280437.949591   20230 grpc_server_lib.cc:465] Started server with ",
        "E0000 00:00:1795280437.949591   20230 grpc_server_lib.cc:465] something went wrong",
        "W0000 00:00:1795280437.949591   20230 dataset.cc:465] something else",
        "WARNING: a word of the member's own",
    ]
    launch = start({"worker 0": [f"say({chr(10).join(lines)!r}); exit(0)"]})
    assert launch.end() == 0
    assert launch.err.splitlines() == [f"worker 0 │ {line}" for line in lines[2:]]
    assert (launch.folder / "logs/attempt-1/worker-0.log").read_text().splitlines() == lines


def test_endless_line_is_split(tmp_path: Path) -> None:
    child = subprocess.Popen(
        ["head", "-c", "200000", "/dev/zero"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    shown: list[int] = []
    assert child.stdout is not None
    reader = start_reader(child.stdout, tmp_path / "log", lambda text: shown.append(len(text)))
    reader.join(SECONDS)
    child.communicate()
    assert sum(shown) == 200000
    assert max(shown) == 65536


def test_unterminated_last_line_is_ended_in_a_shared_log(tmp_path: Path) -> None:
    shown: list[bytes] = []
    for text in (b"no newline", b"next stream\n"):
        start_reader(io.BytesIO(text), tmp_path / "log", shown.append).join(SECONDS)
    assert (tmp_path / "log").read_bytes() == b"no newline\nnext stream\n"
    assert shown == [b"no newline", b"next stream\n"]


def test_unwritable_logs_prevent_the_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file in the way")
    launch = start({"worker 0": ["exit(0)"]})
    assert launch.end() == 2
    assert launch.err.startswith("runner: cannot start worker 0: ")
