"""The lock of a run in an object store: an object that its owner renews.

An object store has no lock that is released when a process dies. So the owner writes a record every
few seconds, and another process takes over the lock only if the record has not changed for
`LEASE_SECONDS` by its own clock. Clocks of two machines are never compared. Each write is
conditional on the version that it replaces (`If-Match`, `ifGenerationMatch`), so that only one of
two processes succeeds.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from orbit_runner.errors import RunnerError
from orbit_runner.storage.objects import ObjectStore, StorageError
from orbit_runner.storage.paths import redact

NAME = ".lock"
LEASE_SECONDS = 45.0
RENEWAL_SECONDS = 10.0
_POLL_SECONDS = 1.0
_LONGEST_COMMAND = 500

# The owner ids of this process's unreleased leases. An id is removed on release even if the release
# cannot be written.
_active_owners: set[str] = set()


class Lease:
    """The right to write a run in an object store, which one process has at a time.

    The record is renewed every `renewal` seconds. Another process may take over if it has not
    changed for `seconds`. `on_lost` is then called from another thread.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        seconds: float = LEASE_SECONDS,
        renewal: float = RENEWAL_SECONDS,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._seconds = seconds
        self._renewal = renewal
        self._on_lost = on_lost
        self.owner = uuid.uuid4().hex
        self._version = ""
        self._count = 0
        self._since = _timestamp()
        self._renewed = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        # The previous owner; "" if the run had none.
        self.previous = ""
        # The record of the process that has taken over; None while this process has the lock.
        self.lost: dict[str, object] | None = None

    def acquire(self) -> None:
        """Acquires the lock, and starts to renew it in a thread.

        Raises RunnerError if another process has the lock, and StorageError if the store cannot be
        written.
        """
        seen = ""
        since = 0.0
        while not self._take_if_free(seen, since):
            version, holder = self._read_record()
            if not version:
                continue
            if seen and version != seen:
                raise self._refusal(holder)
            if not seen:
                if _is_alive_here(holder):
                    raise self._refusal(holder)
                seen = version
                since = time.monotonic()
                print(self._waiting_message(holder), file=sys.stderr)
            time.sleep(min(_POLL_SECONDS, self._seconds))
        _active_owners.add(self.owner)
        self._thread = threading.Thread(
            target=self._renew_until_stopped, name="run-lease", daemon=True
        )
        self._thread.start()

    def _take_if_free(self, seen: str, since: float) -> bool:
        version, holder = self._read_record()
        expired = version == seen and time.monotonic() - since >= self._seconds
        if version and not (expired or "released" in holder or _is_dead_here(holder)):
            return False
        self.previous = str(holder.get("owner", ""))
        return self._write_record(version or None)

    def _read_record(self) -> tuple[str, dict[str, object]]:
        info = self._store.info(NAME)
        if info is None:
            return "", {}
        try:
            record = json.loads(self._store.read(NAME))
        except FileNotFoundError:
            return "", {}
        except (ValueError, RecursionError):
            record = {}
        return info.version, record if isinstance(record, dict) else {}

    def _write_record(self, version: str | None, **more: object) -> bool:
        started = time.monotonic()
        self._count += 1
        record = {
            "owner": self.owner,
            **_describe_this_process(),
            "since": self._since,
            "renewed": _timestamp(),
            "count": self._count,
            **more,
        }
        written = self._store.write_if(NAME, f"{json.dumps(record)}\n".encode(), version)
        if written is None:
            # If the response to a successful write was lost, its retry fails.
            now, holder = self._read_record()
            if holder.get("owner") != self.owner:
                return False
            written = now
        self._version = written
        self._renewed = started
        return True

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(self._renewal):
            try:
                if not self._write_record(self._version):
                    self.lost = self._read_record()[1]
                    self._on_lost()
                    return
            except StorageError:
                continue  # `is_held` returns False after a while.

    def is_held(self) -> bool:
        """Returns whether no other process can have taken over the lock yet."""
        margin = min(self._renewal, self._seconds / 4)
        return self.lost is None and time.monotonic() - self._renewed < self._seconds - margin

    def release(self) -> None:
        """Releases the lock if this process still has it."""
        _active_owners.discard(self.owner)
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.lost is None:
            with contextlib.suppress(StorageError):
                self._write_record(self._version, released=_timestamp())

    def takeover_message(self) -> str:
        """Returns the message for a lock that another process has taken over."""
        return (
            f"another process has taken over {self._store.url}, because this one did not renew its "
            f"lock for {self._seconds:.0f} s\n  {_describe(self.lost or {})}\n"
            "this process has stopped uploading; the other one continues from its last checkpoint"
        )

    def _refusal(self, holder: dict[str, object]) -> RunnerError:
        return RunnerError(
            f"another process is training in {self._store.url}\n"
            f"  {_describe(holder)}\n"
            "wait for it to finish, stop it, or use another --model_dir (evaluation-only modes can "
            "run at the same time)",
            path="--model_dir",
            code="run-locked",
        )

    def _waiting_message(self, holder: dict[str, object]) -> str:
        return (
            f"note: {self._store.url} is locked by {_describe(holder)}\n"
            f"  waiting up to {self._seconds:.0f} s to see whether it still renews its lock"
        )


def _describe(holder: dict[str, object]) -> str:
    if not holder.get("process"):
        return "an unknown process"
    return (
        f"process {holder.get('process')} on {holder.get('host')}, since {holder.get('since')}: "
        f"{holder.get('command')}"
    )


def _describe_this_process() -> dict[str, object]:
    command = redact(shlex.join(sys.orig_argv))
    short = command if len(command) <= _LONGEST_COMMAND else f"{command[:_LONGEST_COMMAND]}…"
    process = os.getpid()
    return {
        "process": process,
        "host": socket.gethostname(),
        "machine": _machine_id(),
        "started": _start_time_of(process),
        "command": short,
    }


def _machine_id() -> str:
    """Returns an id of this system that differs for each boot and container; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_time_of(process: int) -> str:
    """Returns the start time of a process in clock ticks since boot, or "" if it does not run."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    state, *fields = text.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]


def _is_here(holder: dict[str, object]) -> bool:
    machine = _machine_id()
    return bool(machine) and holder.get("machine") == machine and bool(holder.get("started"))


def _is_alive_here(holder: dict[str, object]) -> bool:
    process = holder.get("process")
    if not _is_here(holder) or not isinstance(process, int):
        return False
    if _start_time_of(process) != holder["started"]:
        return False
    return process != os.getpid() or holder.get("owner") in _active_owners


def _is_dead_here(holder: dict[str, object]) -> bool:
    return _is_here(holder) and not _is_alive_here(holder)


def _timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
