"""Downloads over HTTP: complete, resumed, from servers of all kinds, and failing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.datasets.catalogue import PublicDataset
from orbit_runner.datasets.install import DownloadSource, parse_source
from orbit_runner.datasets.transfer import DownloadError
from tests.support.problems import raises

Bring = Callable[..., Path]
CONTENT = bytes(range(251)) * 4000
HALF = len(CONTENT) // 2


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_is_downloaded_in_one_request(server: Any, bring: Bring) -> None:
    folder = bring()

    assert (folder / "set.bin").read_bytes() == CONTENT
    assert names(folder) == ["set.bin"]
    assert server.ranges_asked() == [""]


def test_verified_file_is_not_downloaded_again(
    server: Any, bring: Bring, capsys: pytest.CaptureFixture[str]
) -> None:
    bring()
    server.asked.clear()

    bring()

    assert server.asked == []
    assert "set.bin: already present and verified" in capsys.readouterr().err


def test_broken_download_resumes_where_it_stopped(
    server: Any, bring: Bring, capsys: pytest.CaptureFixture[str]
) -> None:
    server.cuts = [300_000, 200_000]

    folder = bring()

    assert (folder / "set.bin").read_bytes() == CONTENT
    assert server.ranges_asked() == ["", "bytes=300000-", "bytes=500000-"]
    assert [headers.get("if-range") for headers in server.asked] == [None, '"one"', '"one"']
    assert "closed after 300,000 of 1,004,000 bytes; retrying in" in capsys.readouterr().err


def test_next_call_resumes_a_failed_download(server: Any, bring: Bring) -> None:
    server.cuts = [HALF, 0, 0]
    with raises("download-failed"):
        bring()
    folder = bring()

    assert server.ranges_asked()[-1] == f"bytes={HALF}-"
    assert (folder / "set.bin").read_bytes() == CONTENT
    assert names(folder) == ["set.bin"]


def test_download_restarts_if_server_ignores_ranges(server: Any, bring: Bring) -> None:
    server.ranges, server.cuts = False, [HALF]

    assert (bring() / "set.bin").read_bytes() == CONTENT


def test_retries_are_limited_if_server_ignores_ranges_and_disconnects(
    server: Any, bring: Bring
) -> None:
    server.ranges, server.cuts = False, [HALF] * 20

    with raises("download-failed"):
        bring()

    assert len(server.asked) == 1 + 2


def test_partial_file_is_discarded_if_server_file_changed(server: Any, bring: Bring) -> None:
    server.files["set.bin"], server.cuts = b"x" * len(CONTENT), [HALF, 0, 0]
    with pytest.raises(DownloadError):
        bring()
    server.files["set.bin"], server.tag = CONTENT, '"two"'

    folder = bring()

    assert (folder / "set.bin").read_bytes() == CONTENT
    assert server.asked[-1]["if-range"] == '"one"'


@pytest.mark.parametrize("tag", ["", 'W/"weak"'])
def test_resume_uses_the_date_without_a_strong_etag(server: Any, bring: Bring, tag: str) -> None:
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    server.tag, server.modified, server.cuts = tag, date, [HALF]

    bring()

    assert server.asked[1]["if-range"] == date


def test_corrupt_partial_file_is_downloaded_from_the_start(
    server: Any, bring: Bring, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "set.bin.part").write_bytes(b"something else")

    folder = bring()

    assert (folder / "set.bin").read_bytes() == CONTENT
    assert server.ranges_asked() == ["bytes=14-", ""]
    assert "the resumed download is corrupt; starting over" in capsys.readouterr().err


def test_oversized_partial_file_is_discarded(server: Any, bring: Bring, tmp_path: Path) -> None:
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "set.bin.part").write_bytes(CONTENT + b"!")

    assert (bring() / "set.bin").read_bytes() == CONTENT
    assert server.ranges_asked() == [""]


def test_complete_partial_file_needs_no_server(bring: Bring, tmp_path: Path) -> None:
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "set.bin.part").write_bytes(CONTENT)

    folder = bring(source=DownloadSource(base="http://127.0.0.1:9"))

    assert names(folder) == ["set.bin"]


def test_checksum_mismatch_reports_both_checksums(server: Any, bring: Bring) -> None:
    server.files["set.bin"] = b"x" * len(CONTENT)

    with pytest.raises(DownloadError) as failure:
        bring()

    text = str(failure.value)
    assert f"got       1,004,000 bytes, SHA-256 {sha256(b'x' * len(CONTENT)).hexdigest()}" in text
    assert f"published 1,004,000 bytes, SHA-256 {sha256(CONTENT).hexdigest()}" in text
    assert "differs from the published file, so it was removed" in text


def test_checksum_mismatch_leaves_an_empty_directory(
    server: Any, bring: Bring, tmp_path: Path
) -> None:
    server.files["set.bin"] = b"x" * len(CONTENT)

    with pytest.raises(DownloadError):
        bring()

    assert names(tmp_path / "got") == []


@pytest.mark.parametrize(
    ("habits", "said"),
    [
        ({"files": {}}, "the server returned 404"),
        ({"status": [403]}, "403 Forbidden: the server or a proxy requires"),
        ({"status": [500, 503, 500]}, "the server returned 500"),
        ({"files": {"set.bin": b"short"}}, "has 5 bytes, the published file 1,004,000$"),
        ({"files": {"set.bin": b"<html>"}, "kind": "text/html"}, "it may be a login or proxy page"),
        (
            {"files": {"set.bin": CONTENT + b"!"}, "length": False},
            "larger than the published file (1,004,000 bytes)",
        ),
        ({"cuts": [9, 0, 0], "wrong_range": True}, "did not send the requested range"),
    ],
)
def test_unusable_server_response_is_reported(
    server: Any, bring: Bring, habits: dict[str, Any], said: str
) -> None:
    for name, value in habits.items():
        setattr(server, name, value)

    with pytest.raises(DownloadError) as failure:
        bring()

    first, address = str(failure.value).split("\n")
    assert first.startswith("127.0.0.1:")
    assert said.removesuffix("$") in first
    assert address == f"  {server.base}/set.bin"


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before retries, in seconds, which then take no time."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def test_temporary_server_errors_are_retried(
    server: Any, bring: Bring, waited: list[float]
) -> None:
    server.status = [503, 429]

    assert (bring(pauses=(60.0, 90.0)) / "set.bin").read_bytes() == CONTENT
    assert waited == [60.0, 90.0]
    assert len(server.asked) == 3


def test_refused_connection_fails_without_retrying(bring: Bring, waited: list[float]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"

        with raises("download-failed"):
            bring(source=DownloadSource(base=address), pauses=(60.0,))
    assert waited == []


def test_unresolvable_host_fails_without_retrying(bring: Bring, waited: list[float]) -> None:
    with raises("download-failed"):
        bring(source=DownloadSource(), pauses=(60.0,))
    assert waited == []


@pytest.mark.slow
def test_unresponsive_server_times_out(bring: Bring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "orbit_runner.datasets.transfer.transfer.__defaults__", (0.2,), raising=True
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"

        with raises("download-failed"):
            bring(source=DownloadSource(base=address))


def test_second_address_is_tried_if_the_first_fails(
    server: Any, bring: Bring, publish: Any
) -> None:
    data: PublicDataset = publish("set.bin", CONTENT)
    object.__setattr__(data.files[0], "others", (f"{server.base}/set.bin",))

    assert (bring(data, source=DownloadSource()) / "set.bin").read_bytes() == CONTENT


def test_proxy_from_the_environment_is_used(
    server: Any, bring: Bring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.base)
    monkeypatch.delenv("no_proxy", raising=False)

    assert (bring(source=DownloadSource()) / "set.bin").read_bytes() == CONTENT
    assert server.asked[0]["path"] == "http://nowhere.invalid/set.bin"


def test_partial_file_from_another_address_is_resumed(
    server: Any, bring: Bring, tmp_path: Path
) -> None:
    part = tmp_path / "got/set.bin.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:HALF])
    kept = {"url": "http://elsewhere/set.bin", "validator": '"other"'}
    part.with_name("set.bin.part.json").write_text(json.dumps(kept))

    folder = bring()

    assert server.ranges_asked() == [f"bytes={HALF}-"]
    assert "if-range" not in server.asked[0]
    assert names(folder) == ["set.bin"]


def test_file_is_copied_from_a_local_directory(bring: Bring, tmp_path: Path) -> None:
    (tmp_path / "set.bin").write_bytes(CONTENT)

    folder = bring(source=parse_source(str(tmp_path)))

    assert (folder / "set.bin").read_bytes() == CONTENT
    assert (tmp_path / "set.bin").is_file()


def test_file_missing_from_a_local_directory_is_reported(bring: Bring, tmp_path: Path) -> None:
    with raises("download-failed"):
        bring(source=parse_source(str(tmp_path)))


@pytest.mark.parametrize("text", ["ftp://a/b", "/no/such/folder", "http://", "file:///etc"])
def test_invalid_source_is_rejected(text: str) -> None:
    with raises("wrong-type", "--from"):
        parse_source(text)


def test_unrelated_file_is_not_overwritten_without_replace(
    server: Any, bring: Bring, tmp_path: Path
) -> None:
    mine = tmp_path / "got/set.bin"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")

    with raises("already-exists"):
        bring()
    assert mine.read_bytes() == b"mine"
    assert server.asked == []

    bring(replace=True)
    assert mine.read_bytes() == CONTENT
