"""Checks the addresses of cluster members: their format, their hosts, and free ports."""

from __future__ import annotations

import contextlib
import errno
import functools
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable

_PORT = re.compile(r"[0-9]{1,5}")
_MAX_THREADS = 8
_CONNECT_SECONDS = 5.0


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of `host:port`; the brackets of an IPv6 host are removed."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_problem(address: object) -> str:
    """Returns what is wrong with the format of an address, `host:port`; "" if it is valid."""
    shown = repr(address) if len(repr(address)) < 80 else f"{address!r:.60} …"
    expected = f"got {shown}, expected host:port, such as 10.0.0.1:2222"
    if not isinstance(address, str) or "://" in address:
        return expected
    host, colon, port = address.rpartition(":")
    if not colon or not host or any(char.isspace() for char in address):
        return expected
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        return f"got port {port[:20]!r} in {shown}, allowed: 1 to 65535"
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return f"got {shown}, expected an IPv6 host in brackets"
    return ""


def find_unknown_hosts(addresses: Iterable[str], seconds: float) -> dict[str, str]:
    """Returns the unknown hosts of addresses, `host:port`, each with the reason.

    All hosts are looked up at once. A host without an answer after `seconds` counts as known,
    because a slow name server is not a mistake of the user.
    """
    return _find_problems(
        (split_address(address)[0] for address in addresses), _resolve_host, seconds
    )


def find_unreachable_addresses(addresses: Iterable[str], seconds: float) -> dict[str, str]:
    """Returns the addresses, `host:port`, that cannot be reached, each with the reason.

    All addresses are tried at once. An address without an answer after `seconds` is not returned,
    because it may be far away.
    """
    return _find_problems(addresses, _connect, seconds)


def _find_problems(
    subjects: Iterable[str], find_problem: Callable[[str], str], seconds: float
) -> dict[str, str]:
    pending: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    names = dict.fromkeys(subjects)
    for name in names:
        pending.put(name)
    for _ in range(min(len(names), _MAX_THREADS)):
        # Not `concurrent.futures`: the interpreter would wait for its threads at exit.
        look_up = functools.partial(_run_lookups, pending, answers, find_problem)
        threading.Thread(target=look_up, name="lookup", daemon=True).start()
    problems: dict[str, str] = {}
    deadline = time.monotonic() + seconds
    while len(problems) < len(names):
        try:
            name, problem = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            _clear_queue(pending)
            break
        problems[name] = problem
    return {name: problems[name] for name in names if problems.get(name)}


def _clear_queue(pending: queue.SimpleQueue[str]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            pending.get_nowait()


def _run_lookups(
    pending: queue.SimpleQueue[str],
    answers: queue.SimpleQueue[tuple[str, str]],
    find_problem: Callable[[str], str],
) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            name = pending.get_nowait()
            answers.put((name, find_problem(name)))


def _resolve_host(host: str) -> str:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or "not a valid host name"
    return ""


def _connect(address: str) -> str:
    try:
        socket.create_connection(split_address(address), _CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return "nothing is listening there"
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def port_problem(address: str) -> str:
    """Returns why this process cannot listen at its own address, `host:port`; "" if it can."""
    _, port = split_address(address)
    try:
        with listening_socket(port):
            return ""
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"port {port} of {address} is in use by another process"
        return f"cannot listen on port {port} of {address}: {error.strerror}"


def listening_socket(port: int) -> socket.socket:
    """Returns a socket that listens on all addresses of this machine; port 0 is any free port."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    return socket.create_server(
        ("", port), family=family, dualstack_ipv6=family == socket.AF_INET6, backlog=128
    )
