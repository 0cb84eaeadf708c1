"""Lines of JSON between launchers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

from orbit_runner.launch.exit_status import Ending

Message = dict[str, Any]

_LONGEST_MESSAGE = 1 << 20
_SEND_SECONDS = 10.0


class Line:
    """One end of a connection, which several threads may write to and one reads."""

    def __init__(self, talk: socket.socket) -> None:
        """Takes a connection over.

        Args:
            talk: A connected socket.
        """
        self._socket, self._lock = talk, threading.Lock()
        self._file = talk.makefile("rb")
        _keep_alive(talk)

    def send(self, message: Message) -> None:
        """Sends a message; that the other end is gone is seen where it is read from.

        Args:
            message: The message.
        """
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> Message | None:
        """Waits for a message; None where the other end is gone, or is no launcher."""
        try:
            message = json.loads(self._file.readline(_LONGEST_MESSAGE))
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) and "kind" in message else None

    def close(self) -> None:
        """Ends the connection, also for a thread that reads from it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _keep_alive(talk: socket.socket) -> None:
    # A machine that lost its power sends no farewell: half a minute of silence is one.
    talk.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            talk.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        talk.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_SEND_SECONDS * 1000))


def ending_message(ending: Ending, node: int) -> Message:
    """Puts an ending into a message.

    Args:
        ending: The ending.
        node: The machine that tells it.
    """
    return {"who": f"node {node}", "status": ending.status, "words": f"node {node}: {ending}"}


def ending_of(message: Message) -> Ending:
    """Returns the ending in a message.

    Args:
        message: What `ending_message` returned.
    """
    return Ending(str(message["who"]), int(message["status"]), str(message["words"]))
