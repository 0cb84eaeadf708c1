"""A real server on loopback, with the quirks of real servers, and datasets that it publishes."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbit_runner.datasets.catalogue import Archive, PublicDataset, RemoteFile
from orbit_runner.datasets.install import DownloadOptions, DownloadSource, download_dataset
from orbit_runner.utils.log import PlainMessages, log_scope

CONTENT = bytes(range(251)) * 4000  # A little over a megabyte, and no two blocks of it are equal.


@dataclasses.dataclass
class Habits:
    """How the server behaves; may change between two requests."""

    files: dict[str, bytes]
    ranges: bool = True
    tag: str = '"one"'
    modified: str = ""
    cuts: list[int] = dataclasses.field(default_factory=list)
    status: list[int] = dataclasses.field(default_factory=list)
    length: bool = True
    kind: str = "application/octet-stream"
    wrong_range: bool = False
    asked: list[dict[str, str]] = dataclasses.field(default_factory=list)
    base: str = ""

    def ranges_asked(self) -> list[str]:
        return [headers.get("range", "") for headers in self.asked]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    habits: Habits

    def do_GET(self) -> None:
        habits = self.habits
        habits.asked.append({name.lower(): value for name, value in self.headers.items()})
        habits.asked[-1]["path"] = self.path
        status = habits.status.pop(0) if habits.status else 200
        content = habits.files.get(self.path.rpartition("/")[2])
        if content is None or status != 200:
            self.send_error(404 if content is None else status)
            return
        self._send(content, self._start())

    def _start(self) -> int:
        wanted, condition = self.headers.get("Range"), self.headers.get("If-Range")
        known = (self.habits.tag, self.habits.modified)
        if not wanted or not self.habits.ranges or (condition and condition not in known):
            return 0
        return int(wanted.removeprefix("bytes=").removesuffix("-"))

    def _send(self, content: bytes, start: int) -> None:
        habits = self.habits
        self.send_response(206 if start else 200)
        if start:
            shown = start + 1 if habits.wrong_range else start
            self.send_header("Content-Range", f"bytes {shown}-{len(content) - 1}/{len(content)}")
        if habits.length:
            self.send_header("Content-Length", str(len(content) - start))
        for name, value in (("ETag", habits.tag), ("Last-Modified", habits.modified)):
            if value:
                self.send_header(name, value)
        self.send_header("Content-Type", habits.kind)
        self.end_headers()
        end = start + habits.cuts.pop(0) if habits.cuts else len(content)
        self.wfile.write(content[start:end])
        self.close_connection = end < len(content) or not habits.length

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Habits]:
    """A server on loopback; its habits may be changed while it runs."""
    habits = Habits(files={"set.bin": CONTENT})
    handler = type("Handler", (_Handler,), {"habits": habits})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        habits.base = f"http://127.0.0.1:{serving.server_address[1]}"
        yield habits
        serving.shutdown()
        thread.join()


def published(name: str, content: bytes, archive: Archive | None = None) -> PublicDataset:
    """Returns a dataset of one file, at an address that does not exist."""
    file = RemoteFile(
        url=f"http://nowhere.invalid/{name}",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        archive=archive,
    )
    return PublicDataset(
        name="toy", help="a toy", terms="none", files=(file,), results=(name,), folder="data/toy"
    )


@pytest.fixture
def publish() -> Callable[..., PublicDataset]:
    return published


@pytest.fixture
def bring(server: Habits, tmp_path: Path) -> Callable[..., Path]:
    """Downloads a dataset without waiting between attempts; returns the directory."""

    def bring_(data: PublicDataset | None = None, **changes: object) -> Path:
        order = DownloadOptions(
            **{
                "folder": tmp_path / "got",
                "source": DownloadSource(base=server.base),
                "pauses": (0.0, 0.0),
                **changes,
            }
        )
        with log_scope(PlainMessages()):
            download_dataset(data or published("set.bin", CONTENT), order)
        return order.folder

    return bring_


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


@pytest.fixture
def tar() -> Callable[..., bytes]:
    """Makes a tar.gz of (TarInfo, content)."""
    return tar_of
