"""The processes that the launcher started, what is expected of them, their output, how they end.

They end when the launcher ends. Each line of their output is prefixed with their name.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from orbit_runner import exit_codes
from orbit_runner.distribute.cluster.heartbeat import HeartbeatReader
from orbit_runner.errors import RunnerError
from orbit_runner.utils.signals import describe_exit, signal_name

_LAST_WORDS_SECONDS = 2.0
_PAUSE_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """How to start a process."""

    name: str  # shown before its lines
    traits: RoleTraits
    command: tuple[str, ...]
    environ: Mapping[str, str]  # complete environment
    log: Path  # file for its output
    results: bool = False  # whether its stdout goes to the launcher's stdout
    stall_timeout: float = 0.0  # the longest time of a training step in seconds; 0 for no limit


class Process:
    """A process in a separate session, so that Ctrl-C in a terminal reaches only the launcher.

    Must be created in the main thread: on Linux, the process is killed when the thread that created
    it ends. Raises `RunnerError` if the program or the log file cannot be opened.
    """

    def __init__(self, spec: Spec, output: LogMultiplexer) -> None:
        self.spec = spec
        self._heartbeat: HeartbeatReader | None = None
        try:
            spec.log.parent.mkdir(parents=True, exist_ok=True)
            spec.log.touch()
            if spec.traits.leads:
                self._heartbeat = HeartbeatReader(spec.stall_timeout, spec.log)
            self._child = subprocess.Popen(
                spec.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**spec.environ, **(self._heartbeat.environ() if self._heartbeat else {})},
                pass_fds=(self._heartbeat.write_end,) if self._heartbeat else (),
                start_new_session=True,
                preexec_fn=parent_death_hook(os.getpid()),
            )
        except OSError as error:
            raise RunnerError(f"cannot start {spec.name}: {error}", code="server-failed") from error
        if self._heartbeat:
            self._heartbeat.close_write_end()
        self._readers = self._start_readers(output)

    def _start_readers(self, output: LogMultiplexer) -> list[tuple[IO[bytes], threading.Thread]]:
        def show_stderr(text: bytes) -> None:
            if not is_chatter(text):
                output.write_line(self.spec.name, text)

        def show_stdout(text: bytes) -> None:
            if self.spec.results:
                output.write_result(text)
            else:
                show_stderr(text)

        output.add_name(self.spec.name)
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        log = self.spec.log
        shows = {self._child.stdout: show_stdout, self._child.stderr: show_stderr}
        return [(stream, start_log_reader(stream, log, show)) for stream, show in shows.items()]

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._child.pid

    def ending(self) -> Ending | None:
        """Returns how the process ended, after showing its last output; None while it runs."""
        if self._child.returncode is None:
            if not self._has_ended():
                return None
            # Its children are killed, too. It remains a zombie until its status is read, so its ID
            # cannot belong to another process yet.
            self._kill_group()
            self._child.wait()
            for stream, reader in self._readers:
                _join_reader(stream, reader)
            if self._heartbeat:
                self._heartbeat.close()
        return Ending(self.spec.name, self._child.returncode)

    def _has_ended(self) -> bool:
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    @property
    def last_step(self) -> int:
        """The last training step that the process has reported, -1 if there is none."""
        return self._heartbeat.last_step if self._heartbeat else -1

    def stalled_step(self) -> int | None:
        """Returns the last finished step if the process trains, but takes too long for the next."""
        return self._heartbeat.stalled_step() if self._heartbeat else None

    def is_stopped(self) -> bool:
        """Returns whether the process was stopped (SIGSTOP) and so cannot exit."""
        if not hasattr(os, "waitid") or self._child.returncode is not None:
            return False
        flags = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process, but not to its children."""
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the process and its children, even if it is stopped."""
        if self._child.returncode is None:
            self._kill_group()
            self.send_signal(signal.SIGKILL)

    def _kill_group(self) -> None:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


def _join_reader(stream: IO[bytes], reader: threading.Thread) -> None:
    """Waits until a stream is read, unless another process keeps it open and writes nothing."""
    silence = 0.0
    while reader.is_alive() and silence < _LAST_WORDS_SECONDS:
        reader.join(_PAUSE_SECONDS)
        with contextlib.suppress(ValueError):  # The stream is closed, so the reader ends.
            readable, _, _ = select.select([stream], [], [], 0.0)
            silence = 0.0 if readable else silence + _PAUSE_SECONDS


def parent_death_hook(parent: int) -> Callable[[], None] | None:
    """Returns a `preexec_fn` that ends the child with the launcher, or None if not on Linux.

    On Linux, the function makes the kernel kill the child when the launcher dies, for whatever
    reason. On other systems, the child of a killed launcher ends when it next writes to a pipe,
    which is closed.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # The launcher died before this call.
            os._exit(1)

    return prepare


LOST = exit_codes.MEMBER_LOST
_EXIT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXIT_SIGNAL_CODES = tuple(exit_codes.after_signal(number) for number in _EXIT_SIGNALS)


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a process ended."""

    who: str  # name of the process
    status: int  # exit code, or minus the number of the signal that killed it
    words: str = ""  # message, in place of the default

    @property
    def code(self) -> int:
        """The exit code as a shell reports it."""
        return self.status if self.status >= 0 else 128 - self.status

    @property
    def kind(self) -> str:
        """`done`, `left` (on request), `lost` (reports a lost member), `killed` or `failed`."""
        if self.status == 0:
            return "done"
        if self.code in _EXIT_SIGNAL_CODES:
            return "left"
        if self.code == LOST:
            return "lost"
        return "killed" if self.status < 0 else "failed"

    def __str__(self) -> str:
        if self.words:
            return self.words
        if self.kind == "left":
            return f"{self.who} was asked to exit ({signal_name(self.code - 128)})"
        if self.kind == "lost":
            return f"{self.who} reported that another member was lost (exit code {LOST})"
        return f"{self.who} {describe_exit(self.status)}"


def sort_by_significance(endings: Iterable[Ending]) -> list[Ending]:
    """Returns endings of about the same time, those that explain the others first, `done` last.

    SIGKILL comes from outside, and an error or a request to exit has its own exit code. But
    TensorFlow may abort, and members report a loss, because another member was lost. The sort is
    stable.
    """
    return sorted(endings, key=_significance)


def _significance(ending: Ending) -> int:
    if ending.status == -signal.SIGKILL:
        return 0
    return ("failed", "left", "killed", "lost", "done").index(ending.kind) + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoleTraits:
    """How the launcher treats the processes of a role."""

    leads: bool = False  # training is done when all that lead are done
    serves: bool = False  # runs until the launcher ends it, when its clients are done
    grouped: bool = False  # is ended and restarted with the others when one of them is lost
    alone: bool = False  # if it is lost, only this process is restarted


# The evaluator reads checkpoints and does not communicate.
_EVALUATOR = RoleTraits(alone=True)
ROLE_TRAITS: Mapping[str, Mapping[str, RoleTraits]] = {
    "multi_worker_mirrored": {
        "worker": RoleTraits(leads=True, grouped=True),
        "evaluator": _EVALUATOR,
    },
    "parameter_server": {
        "chief": RoleTraits(leads=True, grouped=True),
        "worker": RoleTraits(serves=True, grouped=True, alone=True),
        "ps": RoleTraits(serves=True, grouped=True),
        "evaluator": _EVALUATOR,
    },
}


def visible_gpus(local: int, each: int, inherited: str | None) -> str:
    """Returns the `CUDA_VISIBLE_DEVICES` of one of several members on a machine.

    `local` is the index of the member among those on this machine that use GPUs, and `each` the
    number of GPUs per member. `inherited` is the launcher's variable, or None if it is not set.
    """
    mine = range(local * each, (local + 1) * each)
    if inherited is None:
        return ",".join(str(number) for number in mine)
    there = [name for name in inherited.split(",") if name]
    return ",".join(there[number] for number in mine if number < len(there))


_LONGEST_LINE = 1 << 16
_COLORS = (36, 33, 35, 32, 34, 96, 93, 95)
LAUNCHER = "launcher"


class LogMultiplexer:
    """Shows the output of several processes, without mixing lines.

    Everything goes to `err`, the launcher's stderr, prefixed with the name of the process, except
    the stdout of the process that prints the results. That goes to `out`, the launcher's stdout,
    unchanged, so that a pipe reads what it would read from `runner run`.
    """

    def __init__(self, out: IO[bytes], err: IO[bytes], *, color: bool = False) -> None:
        self._out = out
        self._err = err
        self._color = color
        self._lock = threading.Lock()
        self._names: list[str] = [LAUNCHER]
        self._width = len(LAUNCHER)

    def add_name(self, name: str) -> None:
        """Makes room for the name of a process."""
        with self._lock:
            if name not in self._names:
                self._names.append(name)
            self._width = max(self._width, len(name))

    def note(self, text: str) -> None:
        """Shows a message of the launcher itself."""
        self.write_line(LAUNCHER, text.encode())

    def write_line(self, name: str, text: bytes) -> None:
        """Shows a line of a process."""
        with self._lock:
            prefix = f"{name:<{self._width}} │"
            if self._color:
                number = self._names.index(name) if name in self._names else 0
                style = f"{_COLORS[(number - 1) % len(_COLORS)]}" if number else "1"
                prefix = f"\x1b[{style}m{prefix}\x1b[0m"
            _write(self._err, prefix.encode() + b" " + text.rstrip(b"\r\n") + b"\n")

    def write_result(self, text: bytes) -> None:
        """Writes a line of the results unchanged."""
        with self._lock:
            _write(self._out, text)


def _write(file: IO[bytes], text: bytes) -> None:
    # The reader of a pipe may have exited (`runner launch … | head -1`). That must not stop the
    # members, which would block if their own pipes were not read any more.
    with contextlib.suppress(OSError, ValueError):
        file.write(text)
        file.flush()


# Until absl's log is initialized, it ignores TF_CPP_MIN_LOG_LEVEL, and reports that a server was
# started.
_CHATTER = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) |"
    rb"[IW]\d{4} \d\d:\d\d:[\d.]+ +\d+ grpc_server_lib\.cc:"
)


def is_chatter(text: bytes) -> bool:
    """Returns whether a line is one that TensorFlow writes at any log level."""
    return _CHATTER.match(text) is not None


def start_log_reader(
    stream: IO[bytes], log: Path, show: Callable[[bytes], None]
) -> threading.Thread:
    """Starts a thread that writes each line of a stream to a log file and passes it to `show`.

    Returns the thread, which ends with the stream. Two streams may share a log file.
    """
    # Appending keeps lines whole if two threads write to the same file.
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def copy_lines() -> None:
        try:
            while text := stream.readline(_LONGEST_LINE):
                # The last line may lack its end, and the other stream may write after it.
                ended = len(text) == _LONGEST_LINE or text.endswith(b"\n")
                # A full disk must not stop the member.
                with contextlib.suppress(OSError):
                    os.write(file, text if ended else text + b"\n")
                show(text)
        finally:
            os.close(file)
            stream.close()

    thread = threading.Thread(target=copy_lines, daemon=True)
    thread.start()
    return thread


PAUSE_SECONDS = 0.1


def format_names(processes: Iterable[Process]) -> str:
    """Returns the names of processes, for a message."""
    return ", ".join(process.spec.name for process in processes)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits until a condition is true, for at most `seconds`. Returns whether it became true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


class ProcessPool:
    """Processes by name; a process with the same name as an earlier process replaces it."""

    def __init__(self, output: LogMultiplexer) -> None:
        self._output = output
        self._processes: dict[str, Process] = {}
        self._reported: set[Process] = set()

    def start(self, spec: Spec) -> Process:
        """Starts a process and returns it."""
        process = self._processes[spec.name] = Process(spec, self._output)
        return process

    def has(self, name: str) -> bool:
        """Returns whether a process with this name was started, even if it has ended."""
        return name in self._processes

    def is_settled(self, name: str) -> bool:
        """Returns whether a process runs, or ended as `done` or `left`."""
        ending = self._processes[name].ending() if self.has(name) else None
        if ending is None:
            return self.has(name)
        return ending.kind in ("done", "left")

    def spec(self, name: str) -> Spec:
        """Returns how a process was started."""
        return self._processes[name].spec

    def running_processes(
        self, which: Callable[[RoleTraits], bool] = lambda traits: True
    ) -> list[Process]:
        """Returns the processes that have not ended, filtered by `which`."""
        picked = [p for p in self._processes.values() if which(p.spec.traits)]
        return [process for process in picked if process.ending() is None]

    def last_step(self) -> int:
        """Returns the last training step that a process has reported, -1 if there is none."""
        return max((process.last_step for process in self._processes.values()), default=-1)

    def new_endings(
        self, which: Callable[[RoleTraits], bool] = lambda traits: True
    ) -> list[Ending]:
        """Returns endings that were not returned before, unordered, filtered by `which`."""
        endings = []
        for process in self._processes.values():
            if process in self._reported or not which(process.spec.traits):
                continue
            ending = process.ending()
            if ending is not None:
                self._reported.add(process)
                endings.append(ending)
        return endings

    def end(self, processes: Sequence[Process], seconds: float, stop: Callable[[], bool]) -> None:
        """Ends processes whose exit codes do not matter: SIGTERM, and SIGKILL after `seconds`.

        `stop` returns whether to send SIGKILL at once.
        """
        self._reported.update(processes)
        for process in processes:
            if process.is_stopped():
                process.kill()  # It would not handle SIGTERM before it continues.
            process.send_signal(signal.SIGTERM)
        wait_until(lambda: stop() or not _select_running(processes), seconds)
        self.kill(processes)

    def kill(self, processes: Sequence[Process]) -> list[Process]:
        """Kills the processes that still run, and returns them."""
        late = _select_running(processes)
        for process in late:
            process.kill()
        # SIGKILL cannot be ignored, but a process in a system call on a failed disk may survive it.
        wait_until(lambda: not _select_running(late), 10.0)
        self._reported.update(late)
        return late


def _select_running(processes: Sequence[Process]) -> list[Process]:
    return [process for process in processes if process.ending() is None]
