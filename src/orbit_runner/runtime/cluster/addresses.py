"""Addresses of members: their form, whether hosts are known, whether a port is free."""

from __future__ import annotations

import contextlib
import errno
import functools
import queue
import re
import socket
import threading
import time
from collections.abc import Iterable

_PORT = re.compile(r"[0-9]{1,5}")
_LOOKUPS_AT_ONCE = 8


def split_address(address: str) -> tuple[str, int]:
    """Parts an address.

    Args:
        address: `host:port`; an IPv6 host stands in brackets.

    Returns:
        Host, without brackets, and port.
    """
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_problem(address: object) -> str:
    """Returns what is wrong with the form of an address; "" if nothing is.

    Args:
        address: Should be `host:port`.
    """
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


def unknown_hosts(addresses: Iterable[str], seconds: float) -> dict[str, str]:
    """Looks hosts up, all at once.

    Args:
        addresses: `host:port` of each.
        seconds: How long to wait for the answers. A host of which nothing was heard by then counts
            as known: a slow name server is no mistake of the user's.

    Returns:
        Host to the reason why it is not known.
    """
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    hosts = dict.fromkeys(split_address(address)[0] for address in addresses)
    for host in hosts:
        asked.put(host)
    for _ in range(min(len(hosts), _LOOKUPS_AT_ONCE)):
        # No pool of `concurrent.futures`: the interpreter would wait for its lookups at exit.
        look_up = functools.partial(_look_up, asked, answers)
        threading.Thread(target=look_up, name="lookup", daemon=True).start()
    found: dict[str, str] = {}
    deadline = time.monotonic() + seconds
    while len(found) < len(hosts):
        try:
            host, problem = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            _drop(asked)
            break
        found[host] = problem
    return {host: found[host] for host in hosts if found.get(host)}


def _drop(asked: queue.SimpleQueue[str]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            asked.get_nowait()


def _look_up(asked: queue.SimpleQueue[str], answers: queue.SimpleQueue[tuple[str, str]]) -> None:
    while True:
        try:
            host = asked.get_nowait()
        except queue.Empty:
            return
        problem = ""
        try:
            socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            problem = getattr(error, "strerror", None) or "it is no valid name"
        answers.put((host, problem))


def port_problem(address: str) -> str:
    """Tries whether this process may listen at its own address.

    Args:
        address: `host:port` of this process.

    Returns:
        Why it cannot; "" if it can.
    """
    _, port = split_address(address)
    try:
        with listening_socket(port):
            return ""
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"port {port} of {address} is in use by another process"
        return f"cannot listen on port {port} of {address}: {error.strerror}"


def listening_socket(port: int) -> socket.socket:
    """Opens a socket that listens on all of this machine's addresses.

    Args:
        port: The port; 0 for any free one.

    Returns:
        The socket.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    return socket.create_server(
        ("", port), family=family, dualstack_ipv6=family == socket.AF_INET6, backlog=128
    )
