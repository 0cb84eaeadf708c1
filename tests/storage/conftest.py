"""A real S3 server on loopback, and a proxy in front of it that can fail."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from orbit_runner.storage.objects import ObjectStore

_REQUEST = re.compile(rb"^(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r$", re.MULTILINE)
_BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Passes connections on to a server, answers 503, or closes them at once.

    Attributes:
        mode: `up`, `busy` or `down`.
        requests: (method, path) of each request that was passed on, in order.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self.mode, self.requests = "up", list[tuple[str, str]]()
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def fail(self, mode: str) -> None:
        """Fails from now on, open connections included."""
        self.mode = mode
        for connection in [*self._open]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.fail("down")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if self.mode == "down":
                return
            if self.mode == "busy":
                client.recv(65536)
                client.sendall(_BUSY)
                return
            with socket.create_connection(self._server) as server:
                self._open |= {client, server}
                back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
                back.start()
                self._pass(client, server, record=True)
                back.join()
                self._open -= {client, server}

    def _pass(self, source: socket.socket, target: socket.socket, record: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if record:
                    requests = _REQUEST.findall(data)
                    self.requests += [(method.decode(), path.decode()) for method, path in requests]
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[str, int]]:
    """The address of an S3 server that has a bucket called `bucket`."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    request = urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT")
    urllib.request.urlopen(request).close()
    yield host, port
    server.stop()


@pytest.fixture(scope="session")
def session_proxy(s3_server: tuple[str, int]) -> Iterator[Proxy]:
    """One for all tests: another address would need another client, which is slow to create."""
    server = Proxy(s3_server)
    yield server
    server.close()


@pytest.fixture
def proxy(session_proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Acts as S3 for this process and its children; each test has its own cache."""
    server = session_proxy
    server.requests = []
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATESTTESTTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-tests")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield server
    server.mode = "up"


@pytest.fixture
def url(proxy: Proxy) -> str:
    """A location in the store that nothing else uses."""
    return f"s3://bucket/{uuid.uuid4().hex[:8]}/run"


@pytest.fixture
def store(url: str) -> ObjectStore:
    """The same location, opened."""
    return ObjectStore(url)
