"""Intercepts the system calls by which a process and its children write, with seccomp.

Linux asks this process about each call before it is made (`SECCOMP_RET_USER_NOTIF`). Unlike a
library that replaces functions, this sees the calls of Python, of C++ and of the C library alike.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import fcntl
import os
import platform
import socket
import struct
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_INT = 0xFFFFFFFF  # A descriptor is an int in the lower half of a register.
_AT_FDCWD = -100 & _INT
_PIDFD_GETFD = 438

# Name: (number on x86-64, on 64-bit ARM; positions of the paths, or of a descriptor). A path at
# position 1 or 3 belongs to the directory descriptor before it.
_CALLS: dict[str, tuple[int | None, int | None, tuple[int, ...]]] = {
    "rename": (82, None, (0, 1)),
    "renameat": (264, 38, (1, 3)),
    "renameat2": (316, 276, (1, 3)),
    "mkdir": (83, None, (0,)),
    "mkdirat": (258, 34, (1,)),
    "unlink": (87, None, (0,)),
    "unlinkat": (263, 35, (1,)),
    "rmdir": (84, None, (0,)),
    "truncate": (76, 45, (0,)),
    "link": (86, None, (1,)),
    "linkat": (265, 37, (3,)),
    "symlink": (88, None, (1,)),
}
_ON_DESCRIPTORS = {
    "pwrite64": (18, 68),
    "writev": (20, 66),
    "pwritev": (296, 70),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "ftruncate": (77, 46),
    "sendfile": (40, 71),
}
_WRITE, _OPEN, _OPENAT = (1, 64), (2, None), (257, 56)
# With one file descriptor for each directory, as `os.open` has them.
_WITH_DIRECTORY = ("renameat", "renameat2", "mkdirat", "unlinkat", "linkat", "openat")
_OPENS_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


def _number(numbers: tuple[int | None, int | None]) -> int | None:
    return numbers[0 if platform.machine() == "x86_64" else 1]


def is_available() -> bool:
    """Returns whether this machine can intercept system calls."""
    try:
        actions = Path("/proc/sys/kernel/seccomp/actions_avail").read_text()
    except OSError:
        return False
    return "user_notif" in actions and platform.machine() in ("x86_64", "aarch64")


@dataclasses.dataclass(frozen=True)
class Call:
    """A system call that a thread is about to make; it waits for an answer."""

    id: int
    thread: int
    name: str
    arguments: tuple[int, ...]

    @property
    def process(self) -> int:
        """The process of the thread."""
        status = Path(f"/proc/{self.thread}/status").read_text()
        return int(status.partition("\nTgid:")[2].split()[0])

    def paths(self) -> list[Path]:
        """Returns the paths that the call changes; [] if the thread is gone."""
        try:
            return [self._path(position) for position in self._positions()]
        except (OSError, ValueError):
            return []

    def _positions(self) -> tuple[int, ...]:
        if self.name in ("open", "openat"):
            return (0,) if self.name == "open" else (1,)
        return _CALLS[self.name][2] if self.name in _CALLS else (-1,)

    def _path(self, position: int) -> Path:
        if position < 0:
            return Path(os.readlink(f"/proc/{self.thread}/fd/{self.arguments[0] & _INT}"))
        path = Path(os.fsdecode(self._text(self.arguments[position])))
        if path.is_absolute():
            return path
        directory = "cwd"
        if self.name in _WITH_DIRECTORY:
            descriptor = self.arguments[position - 1] & _INT
            directory = "cwd" if descriptor == _AT_FDCWD else f"fd/{descriptor}"
        return Path(os.readlink(f"/proc/{self.thread}/{directory}")) / path

    def _text(self, address: int) -> bytes:
        return self.memory(address, 4096).split(b"\0")[0]

    def memory(self, address: int, count: int) -> bytes:
        """Returns bytes of the thread's memory, perhaps fewer than `count`."""
        with open(f"/proc/{self.thread}/mem", "rb", buffering=0) as file:
            file.seek(address)
            # The page after the last one may not exist.
            first = min(count, 4096 - address % 4096)
            content = file.read(first)
            while len(content) < count:
                try:
                    more = file.read(min(4096, count - len(content)))
                except OSError:
                    break
                content += more
            return content

    def write_half(self) -> int | None:
        """Makes half of the write that is called for; returns the bytes, or None if it cannot."""
        descriptor, address, count = self.arguments[:3]
        if self.name not in ("write", "pwrite64") or count < 2:
            return None
        data = self.memory(address, count // 2)
        process = os.pidfd_open(self.process)
        own = _LIBC.syscall(_PIDFD_GETFD, process, ctypes.c_int(descriptor & _INT), 0)
        os.close(process)
        if own < 0:
            return None
        try:
            if self.name == "write":
                return os.write(own, data)
            return os.pwrite(own, data, self.arguments[3])
        finally:
            os.close(own)


class Listener:
    """Receives the calls of the processes that inherit a filter, and answers them."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        numbers = {_number(pair): name for name, pair in _ON_DESCRIPTORS.items()}
        numbers |= {_number(row[:2]): name for name, row in _CALLS.items()}
        numbers |= {_number(_WRITE): "write", _number(_OPENAT): "openat", _number(_OPEN): "open"}
        self._names = numbers

    def receive(self) -> Call | None:
        """Returns the next call; None if its thread was killed."""
        buffer = bytearray(80)
        try:
            fcntl.ioctl(self.descriptor, _RECEIVE, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        identity, thread, _ = struct.unpack_from("=QII", buffer)
        number, _, _, *arguments = struct.unpack_from("=iIQ6Q", buffer, 16)
        return Call(identity, thread, self._names[number], tuple(arguments))

    def proceed(self, call: Call) -> None:
        """Lets the kernel make the call."""
        self._send(struct.pack("=QqiI", call.id, 0, 0, _CONTINUE))

    def fail(self, call: Call, number: int) -> None:
        """Makes the call return an error."""
        self._send(struct.pack("=QqiI", call.id, 0, -number, 0))

    def succeed(self, call: Call, value: int) -> None:
        """Makes the call return a value without being made."""
        self._send(struct.pack("=QqiI", call.id, value, 0, 0))

    def _send(self, answer: bytes) -> None:
        try:
            fcntl.ioctl(self.descriptor, _SEND, answer)
        except OSError as error:
            if error.errno != errno.ENOENT:  # The thread was killed.
                raise


def install_filter() -> int:
    """Installs the filter in this process. Returns the descriptor for a `Listener`."""
    program = _program()
    code = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    header = struct.pack("@HP", len(program), ctypes.addressof(code))
    if _LIBC.prctl(38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl")
    seccomp = 317 if platform.machine() == "x86_64" else 277
    # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER
    descriptor = _LIBC.syscall(seccomp, 1, 8, ctypes.c_char_p(header))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return int(descriptor)


def send_listener(descriptor: int) -> None:
    """Installs the filter in this process, and sends the descriptor for its `Listener`."""
    with socket.socket(fileno=descriptor) as connection:
        listener = install_filter()
        socket.send_fds(connection, [b"."], [listener])
        os.close(listener)


def _program() -> list[bytes]:
    """Returns the filter, in the instructions of the Berkeley Packet Filter."""
    always = [_number(row[:2]) for row in _CALLS.values()]
    # A program of standard output would only be slower.
    by_descriptor = [_number(pair) for pair in (_WRITE, *_ON_DESCRIPTORS.values())]
    lines = [_line(_LOAD, 0)]
    lines += _checked(by_descriptor, 0, _AT_LEAST, 3)
    lines += _checked([_number(_OPEN)], 1, _ANY_BIT, _OPENS_TO_WRITE)
    lines += _checked([_number(_OPENAT)], 2, _ANY_BIT, _OPENS_TO_WRITE)
    for number in filter(None, always):
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _NOTIFY)]
    return [*lines, _line(_RETURN, _ALLOW)]


def _checked(numbers: list[int | None], position: int, test: int, value: int) -> list[bytes]:
    """Returns instructions that notify of calls with such an argument, and allow other ones."""
    lines = []
    for number in filter(None, numbers):
        lines += [
            _line(_EQUAL, number, 0, 4),
            _line(_LOAD, 16 + 8 * position),  # the lower half of the argument
            _line(test, value, 1, 0),
            _line(_RETURN, _ALLOW),
            _line(_RETURN, _NOTIFY),
        ]
    return lines


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
