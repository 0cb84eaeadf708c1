"""A socket that carries JSON objects, one per line, between two processes of a machine."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from typing import Any

_BLOCK = 65536


class JsonSocket:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._rest = connection, b""

    def fileno(self) -> int:
        """Returns the descriptor, for `select`."""
        return self._connection.fileno()

    def send(self, **values: Any) -> None:
        """Sends an object. Does nothing if the other end is closed: `receive` reports that."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(f"{json.dumps(values)}\n".encode())

    def receive(self, timeout: float | None = None) -> list[dict[str, Any]] | None:
        """Returns the objects that have arrived; None if the other end is closed.

        Waits until something arrives, but at most `timeout` seconds if it is not None.
        """
        if not select.select([self._connection], [], [], timeout)[0]:
            return []
        try:
            found = self._connection.recv(_BLOCK)
        except ConnectionResetError:
            found = b""
        if not found:
            return None
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Closes this end."""
        self._connection.close()
