"""A downloaded dataset is verified, unpacked and complete, and no other file is overwritten."""

from __future__ import annotations

import hashlib
import http.server
import io
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from orbit_runner.datasets.catalogue import PublicDataset, RemoteFile
from orbit_runner.datasets.download import DownloadError, address_of, download_dataset, fetch
from tests.support.problems import raises

CONTENT = bytes(range(251)) * 4000


class _Server(http.server.ThreadingHTTPServer):
    """A real server on loopback, which may send less than it says."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.sent_bytes: int | None = None  # of each file
        self.hangs = threading.Event()
        self.requests = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.requests += 1
        content = self.server.files.get(self.path.rpartition("/")[2])
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: self.server.sent_bytes])
        self.wfile.flush()
        self.server.hangs.wait(60)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server() as serving:
        serving.hangs.set()
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield serving
        serving.hangs.set()
        serving.shutdown()
        thread.join()


def published(
    name: str,
    content: bytes,
    *,
    is_archive: bool = False,
    members: Mapping[str, str] | None = None,
    results: Sequence[str] = (),
) -> PublicDataset:
    """Returns a dataset of one file, at an address that does not exist."""
    file = RemoteFile(
        url=f"http://nowhere.invalid/{name}",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        is_archive=is_archive,
        members=members,
    )
    return PublicDataset(
        name="toy",
        help="a toy",
        terms="none",
        files=(file,),
        results=tuple(results) or (name,),
        folder="data/toy",
    )


def tar_of(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def zip_of(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


PACKED = {"set/a.txt": b"one", "set/b.txt": b"two"}


@pytest.fixture
def packed(server: _Server) -> PublicDataset:
    """A published tar.gz of two files in a directory."""
    server.files["set.tgz"] = tar_of(PACKED)
    return published("set.tgz", server.files["set.tgz"], is_archive=True, results=[*PACKED])


def test_file_is_downloaded_once(
    server: _Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.files["set.bin"] = CONTENT
    data = published("set.bin", CONTENT)

    assert download_dataset(data, tmp_path / "got", base=server.base)
    assert not download_dataset(data, tmp_path / "got", base=server.base)

    assert (tmp_path / "got/set.bin").read_bytes() == CONTENT
    assert names(tmp_path / "got") == ["set.bin"]
    assert server.requests == 1


@pytest.mark.parametrize("sent", [0, len(CONTENT) - 1])
def test_a_part_of_a_file_never_counts_as_the_file(
    server: _Server, tmp_path: Path, sent: int
) -> None:
    server.files["set.bin"] = CONTENT
    server.sent_bytes = sent

    with raises("download-failed"):
        download_dataset(published("set.bin", CONTENT), tmp_path / "got", base=server.base)
    assert names(tmp_path / "got") == []
    with raises("download-failed"):
        fetch(f"{server.base}/set.bin", tmp_path / "unknown_size.bin")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (CONTENT[::-1], "wrong-checksum"),
        (CONTENT + b"more", "download-failed"),
        (b"<html>log in", "download-failed"),
        (None, "download-failed"),
    ],
)
def test_another_file_is_refused(
    server: _Server, tmp_path: Path, content: bytes | None, code: str
) -> None:
    if content is not None:
        server.files["set.bin"] = content

    with raises(code):
        download_dataset(published("set.bin", CONTENT), tmp_path / "got", base=server.base)
    assert names(tmp_path / "got") == []


def test_errors_say_which_address_failed_and_why(server: _Server, tmp_path: Path) -> None:
    for url, reason in (
        (f"{server.base}/none", "404"),
        ("http://127.0.0.1:9/set.bin", "refused"),
        ("http://nowhere.invalid/set.bin", ""),
    ):
        with pytest.raises(DownloadError) as caught:
            fetch(url, tmp_path / "set.bin", 5)
        assert url in str(caught.value)
        assert reason in str(caught.value)
        assert "urlopen" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(("kill", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_killed_download_leaves_no_file_and_can_be_repeated(
    server: _Server, tmp_path: Path, kill: signal.Signals, code: int
) -> None:
    server.files["set.bin"] = CONTENT
    server.sent_bytes = 500_000
    server.hangs.clear()
    digest = hashlib.sha256(CONTENT).hexdigest()
    command = [
        *(sys.executable, "-c", PROGRAM, str(len(CONTENT)), digest),
        *(f"--dir={tmp_path / 'toy'}", f"--from={server.base}"),
    ]

    def as_in_front() -> None:
        # A shell has its background jobs ignore Ctrl-C, and their children inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=as_in_front
    ) as process:
        deadline = time.monotonic() + 600
        while not server.requests and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(kill)
        said = process.communicate(timeout=600)[1]
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert not (tmp_path / "toy/set.bin").exists()
    server.sent_bytes = None
    server.hangs.set()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "toy/set.bin").read_bytes() == CONTENT


PROGRAM = """
import sys
from orbit_runner.cli.main import main
from orbit_runner.datasets.catalogue import SETS
from orbit_runner.datasets.catalogue import PublicDataset, RemoteFile

file = RemoteFile(url="http://nowhere.invalid/set.bin", size=int(sys.argv[1]), sha256=sys.argv[2])
SETS["toy"] = PublicDataset(
    name="toy", help="a toy", terms="none", files=(file,), results=("set.bin",), folder="toy"
)
sys.exit(main(["data", "get", "toy", *sys.argv[3:]]))
"""


def test_archive_is_unpacked_once_and_not_kept(
    server: _Server, packed: PublicDataset, tmp_path: Path
) -> None:
    assert download_dataset(packed, tmp_path, base=server.base)
    assert not download_dataset(packed, tmp_path, base=server.base)

    assert names(tmp_path) == ["set", *PACKED]
    assert {name: (tmp_path / name).read_bytes() for name in PACKED} == PACKED
    assert server.requests == 1


def test_zip_is_unpacked(server: _Server, tmp_path: Path) -> None:
    server.files["set.zip"] = zip_of(PACKED)
    data = published("set.zip", server.files["set.zip"], is_archive=True)

    download_dataset(data, tmp_path, base=server.base)

    assert {name: (tmp_path / name).read_bytes() for name in PACKED} == PACKED


def test_missing_file_of_an_archive_is_restored(
    server: _Server, packed: PublicDataset, tmp_path: Path
) -> None:
    download_dataset(packed, tmp_path, base=server.base)
    (tmp_path / "set/a.txt").unlink()

    assert download_dataset(packed, tmp_path, base=server.base)
    assert (tmp_path / "set/a.txt").read_bytes() == b"one"


@pytest.mark.parametrize("is_archive", [True, False])
def test_different_file_is_not_overwritten(
    is_archive: bool, server: _Server, packed: PublicDataset, tmp_path: Path
) -> None:
    server.files["set.bin"] = CONTENT
    data = packed if is_archive else published("set.bin", CONTENT)
    path = tmp_path / ("set/a.txt" if is_archive else "set.bin")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"my")

    with raises("already-exists"):
        download_dataset(data, tmp_path, base=server.base)

    assert path.read_bytes() == b"my"


def test_archive_members_are_renamed_for_the_data_source(server: _Server, tmp_path: Path) -> None:
    sgm = b'<seg id="1">eins &amp;\n\n 1</seg>\n<hr><SEG id="2">zwei</SEG>'
    files = {"./dev/t-src.de.sgm": sgm, "dev/t.en": b"a\n", "dev/other": b""}
    server.files["dev.tgz"] = tar_of(files)
    members = {"dev/t-src.de.sgm": "t.de", "dev/t.en": "t.en"}
    data = published("dev.tgz", server.files["dev.tgz"], is_archive=True, members=members)

    download_dataset(data, tmp_path, base=server.base)

    assert names(tmp_path) == ["t.de", "t.en"]
    assert (tmp_path / "t.de").read_text() == "eins &amp; 1\nzwei\n"


def test_archive_without_a_member_is_refused(server: _Server, tmp_path: Path) -> None:
    server.files["dev.tgz"] = tar_of({"dev/t.en": b"a\n"})
    members = {"dev/t.en": "t.en", "dev/t.de": "t.de"}
    data = published("dev.tgz", server.files["dev.tgz"], is_archive=True, members=members)

    with raises("download-failed"):
        download_dataset(data, tmp_path, base=server.base)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "content",
    [
        tar_of({"good": b"good", "../../evil": b"evil"}),
        tar_of(PACKED)[:-20],
        b"no archive",
    ],
)
def test_archive_that_leads_outside_or_is_damaged_leaves_nothing(
    server: _Server, tmp_path: Path, content: bytes
) -> None:
    server.files["set.tgz"] = content
    data = published("set.tgz", content, is_archive=True)

    with raises("download-failed"):
        download_dataset(data, tmp_path / "a/b", base=server.base)
    assert names(tmp_path) == ["a", "a/b"]


def test_files_are_read_from_a_directory(tmp_path: Path) -> None:
    (tmp_path / "my files").mkdir()
    (tmp_path / "my files/set.bin").write_bytes(CONTENT)
    base = address_of(str(tmp_path / "my files"))

    assert download_dataset(published("set.bin", CONTENT), tmp_path / "got", base=base)
    assert (tmp_path / "got/set.bin").read_bytes() == CONTENT
    with raises("download-failed"):
        download_dataset(published("other.bin", CONTENT), tmp_path / "got", base=base)


@pytest.mark.parametrize("text", ["ftp://x/y", "nowhere", "http://"])
def test_invalid_source_is_rejected(text: str) -> None:
    with raises("wrong-type", "--from"):
        address_of(text)
