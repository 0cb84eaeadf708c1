"""Files of published weights: downloaded once, resumed, verified, and offline from the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.datasets.catalogue import PublishedFile
from orbit_runner.datasets.published_files import local_files
from orbit_runner.datasets.transfer import DownloadError
from orbit_runner.errors import RunnerError
from orbit_runner.utils.log import PlainMessages, log_scope
from tests.datasets.download.conftest import CONTENT
from tests.support.problems import raises

MD5 = hashlib.md5(CONTENT).hexdigest()
SHA = hashlib.sha256(CONTENT).hexdigest()
OTHER = CONTENT[::-1]


@pytest.fixture
def get(server: Any, tmp_path: Path) -> Callable[..., dict[Path, str]]:
    def get_(digest: str = MD5, name: str = "set.bin") -> dict[Path, str]:
        file = PublishedFile(url=f"{server.base}/{name}", digest=digest)
        with log_scope(PlainMessages()):
            return local_files([file], tmp_path / "cache", pauses=(0.0, 0.0))

    return get_


@pytest.mark.parametrize("digest", [MD5, SHA, ""])
def test_file_is_downloaded_once_and_works_without_a_server(
    digest: str, get: Any, server: Any, tmp_path: Path
) -> None:
    path = tmp_path / "cache" / "set.bin"

    assert get(digest) == {path: f"sha256:{SHA}"}
    server.files.clear()
    assert get(digest) == {path: f"sha256:{SHA}"}

    assert len(server.asked) == 1
    assert path.read_bytes() == CONTENT
    assert not path.with_name("set.bin.part").exists()


def test_interrupted_download_resumes_in_the_next_start(
    get: Any, server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.cuts = [300_000, 0, 0, 0]
    with raises("download-failed"):
        get()
    assert (tmp_path / "cache" / "set.bin.part").read_bytes() == CONTENT[:300_000]
    server.asked.clear()
    server.cuts.clear()

    assert [*get().values()] == [f"sha256:{SHA}"]

    assert server.ranges_asked() == ["bytes=300000-"]
    assert "set.bin: resuming after 300 kB" in capsys.readouterr().err


def test_other_content_than_the_published_digest_is_refused(
    get: Any, server: Any, tmp_path: Path
) -> None:
    server.files["set.bin"] = OTHER

    with pytest.raises(DownloadError) as caught:
        get()

    got = hashlib.md5(OTHER).hexdigest()
    assert str(caught.value) == (
        "set.bin: differs from the published file, so it was removed\n"
        f"  got 1,004,000 bytes, MD5 {got}\n  published: MD5 {MD5}"
    )
    assert not [*(tmp_path / "cache").glob("set.bin*")]


def test_resumed_part_of_another_file_is_downloaded_again(
    get: Any, server: Any, tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "set.bin.part").write_bytes(OTHER[:1000])

    assert [*get().values()] == [f"sha256:{SHA}"]

    assert server.ranges_asked() == ["bytes=1000-", ""]


def test_without_a_published_digest_the_first_file_counts(
    get: Any, server: Any, tmp_path: Path
) -> None:
    get("")
    path = tmp_path / "cache" / "set.bin"
    path.unlink()
    server.files["set.bin"] = OTHER

    with raises("wrong-checksum"):
        get("")

    path.with_name("set.bin.json").unlink()
    assert [*get("").values()] == [f"sha256:{hashlib.sha256(OTHER).hexdigest()}"]


@pytest.mark.parametrize("digest", [MD5, ""])
def test_file_that_changed_in_the_cache_is_refused(digest: str, get: Any, tmp_path: Path) -> None:
    get(digest)
    path = tmp_path / "cache" / "set.bin"
    path.write_bytes(OTHER)

    with pytest.raises(RunnerError) as caught:
        get(digest)

    message = str(caught.value)
    assert message.startswith(f"{path} is not the published file, or has changed\n  got 1,004,000")
    assert message.endswith("remove it to download it again")


def test_file_that_the_user_put_into_the_cache_is_verified(
    get: Any, server: Any, tmp_path: Path
) -> None:
    path = tmp_path / "cache" / "set.bin"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    get()
    assert server.asked == []
    assert json.loads(path.with_name("set.bin.json").read_text())["digest"] == f"sha256:{SHA}"

    path.with_name("set.bin.json").unlink()
    path.write_bytes(OTHER)
    with raises("wrong-checksum"):
        get()


def test_server_without_the_size_or_the_file_is_reported(get: Any, server: Any) -> None:
    with raises("download-failed"):
        get(name="other.bin")
    server.length = False
    with raises("download-failed"):
        get()


def test_unwritable_cache_is_reported(get: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")

    with raises("download-failed"):
        get()
