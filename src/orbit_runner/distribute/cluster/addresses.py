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
from collections.abc import Callable, Iterable

_PORT = re.compile(r"[0-9]{1,5}")
_QUESTIONS_AT_ONCE, _CONNECT_SECONDS = 8, 5.0


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
    return _problems((split_address(address)[0] for address in addresses), _look_up, seconds)


def find_unreachable(addresses: Iterable[str], seconds: float) -> dict[str, str]:
    """Tries whether somebody listens at addresses, all at once.

    Args:
        addresses: `host:port` of each.
        seconds: How long to wait. An address of which nothing was heard by then may be far away.

    Returns:
        Address to the reason why it cannot be reached.
    """
    return _problems(addresses, _connect, seconds)


def _problems(asked: Iterable[str], find: Callable[[str], str], seconds: float) -> dict[str, str]:
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    names = dict.fromkeys(asked)
    for name in names:
        left.put(name)
    for _ in range(min(len(names), _QUESTIONS_AT_ONCE)):
        # No pool of `concurrent.futures`: the interpreter would wait for its threads at exit.
        ask = functools.partial(_ask, left, answers, find)
        threading.Thread(target=ask, name="lookup", daemon=True).start()
    found: dict[str, str] = {}
    deadline = time.monotonic() + seconds
    while len(found) < len(names):
        try:
            name, problem = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            _drop(left)
            break
        found[name] = problem
    return {name: found[name] for name in names if found.get(name)}


def _drop(left: queue.SimpleQueue[str]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            left.get_nowait()


def _ask(
    left: queue.SimpleQueue[str],
    answers: queue.SimpleQueue[tuple[str, str]],
    find: Callable[[str], str],
) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            name = left.get_nowait()
            answers.put((name, find(name)))


def _look_up(host: str) -> str:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or "it is no valid name"
    return ""


def _connect(address: str) -> str:
    try:
        socket.create_connection(split_address(address), _CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return "nobody listens there"
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


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
