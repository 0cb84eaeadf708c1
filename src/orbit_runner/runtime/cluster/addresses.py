"""Addresses of members: their form, whether hosts are known, whether a port is free."""

from __future__ import annotations

import errno
import socket


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
    expected = "expected host:port, such as 10.0.0.1:2222"
    if not isinstance(address, str) or "://" in address:
        return f"got {address!r}, {expected}"
    host, colon, port = address.rpartition(":")
    if not colon or not host or any(char.isspace() for char in address):
        return f"got {address!r}, {expected}"
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        return f"got port {port!r} in {address!r}, allowed: 1 to 65535"
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return f"got {address!r}, expected an IPv6 host in brackets"
    return ""


def host_problem(address: str) -> str:
    """Looks a host up.

    Args:
        address: `host:port`.

    Returns:
        Why it is not known; "" if it is.
    """
    host, port = split_address(address)
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return f"the host {host!r} is not known: {getattr(error, 'strerror', None) or error}"
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
