"""The merged display."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

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


def test_lines_of_several_processes_are_not_mixed(start: Start) -> None:
    shout = "for i in range(300): say(f'{ME} ' + 'y' * 200)\nexit(0)"
    launch = start({name: [shout] for name in ("worker 0", "worker 1", "worker 2")})
    assert launch.end() == 0
    lines = launch.err.splitlines()
    assert len(lines) == 900
    assert {line.partition(" │ ")[0] for line in lines} == {f"worker {i}" for i in range(3)}
    assert all(line == f"{line[:8]} │ {line[:8]} " + "y" * 200 for line in lines)


def test_endless_line_is_split() -> None:
    child = subprocess.Popen(
        ["head", "-c", "200000", "/dev/zero"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    shown: list[int] = []
    assert child.stdout is not None
    reader = start_reader(child.stdout, lambda text: shown.append(len(text)))
    reader.join(SECONDS)
    child.communicate()
    assert sum(shown) == 200000
    assert max(shown) == 65536
