"""Checks the addresses of servers: their format, whether they answer, and free ports."""

from __future__ import annotations

import enum
import errno
import re
import socket

_PORT = re.compile(r"[0-9]{1,5}")
# The start of an HTTP/2 connection, and so of gRPC (RFC 9113, section 3.4): the preface and an
# empty SETTINGS frame. The kernel accepts connections even for a process that hangs; only a running
# process answers.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of `host:port`; the brackets of an IPv6 host are removed."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_problem(address: object) -> str:
    """Returns what is wrong with the format of an address, `host:port`; "" if it is valid."""
    quoted = repr(address) if len(repr(address)) < 80 else f"{address!r:.60} …"
    expected = f"got {quoted}, expected host:port, such as 10.0.0.1:2222"
    if not isinstance(address, str) or "://" in address:
        return expected
    host, colon, port = address.rpartition(":")
    if not colon or not host or any(char.isspace() for char in address):
        return expected
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        return f"got port {port[:20]!r} in {quoted}, allowed: 1 to 65535"
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return f"got {quoted}, expected an IPv6 host in brackets"
    return ""


class Liveness(enum.Enum):
    """The state of a server, as seen from outside."""

    ALIVE = "answers"
    GONE = "nothing is listening"
    SILENT = "no response"


def probe(address: str, seconds: float = 2.0) -> Liveness:
    """Returns whether a gRPC server answers at `address`, `host:port`, within `seconds`."""
    try:
        with socket.create_connection(split_address(address), seconds) as talk:
            talk.sendall(_PREFACE)
            return Liveness.ALIVE if talk.recv(1) else Liveness.GONE
    except TimeoutError:
        return Liveness.SILENT
    except (OSError, UnicodeError):  # The second if the host is not a valid name.
        return Liveness.GONE


def port_problem(address: str) -> str:
    """Returns why this process cannot listen at its own address, `host:port`; "" if it can."""
    try:
        with listening_socket(split_address(address)[1]):
            return ""
    except OSError as error:
        return describe_listen_error(address, error)


def describe_listen_error(address: str, error: OSError) -> str:
    """Returns what is wrong if a process cannot listen at its own address, `host:port`."""
    _, port = split_address(address)
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {address} is in use by another process"
    return f"cannot listen on port {port} of {address}: {error.strerror}"


def listening_socket(port: int) -> socket.socket:
    """Returns a socket that listens on all addresses of this machine; port 0 is any free port."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    return socket.create_server(
        ("", port), family=family, dualstack_ipv6=family == socket.AF_INET6, backlog=128
    )
