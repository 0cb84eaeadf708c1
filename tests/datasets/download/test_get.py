"""A downloaded dataset is unpacked and complete, and no other file is overwritten."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_runner.datasets.catalogue import Archive, PublicDataset
from orbit_runner.datasets.install import directory_lock_scope
from tests.support.problems import raises

Bring = Callable[..., Path]
LIMIT = 10_000
RECORD = ".runner_data.json"


@pytest.fixture
def packed(
    server: Any, publish: Callable[..., PublicDataset], tar: Callable[..., bytes]
) -> PublicDataset:
    """A published tar.gz of two files in a directory."""
    content = tar((tarfile.TarInfo("set/a.txt"), b"one"), (tarfile.TarInfo("set/b.txt"), b"two"))
    server.files["set.tgz"] = content
    return publish("set.tgz", content, Archive(limit=LIMIT))


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_archive_is_unpacked_and_deleted(bring: Bring, packed: PublicDataset) -> None:
    folder = bring(packed)

    assert names(folder) == [RECORD, "set", "set/a.txt", "set/b.txt"]
    assert (folder / "set/b.txt").read_bytes() == b"two"


def test_second_call_downloads_nothing(
    server: Any, bring: Bring, packed: PublicDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    bring(packed)
    server.asked.clear()

    bring(packed)

    assert server.asked == []
    assert "set.tgz: already present and verified" in capsys.readouterr().err


def test_missing_file_is_restored(server: Any, bring: Bring, packed: PublicDataset) -> None:
    folder = bring(packed)
    (folder / "set/a.txt").unlink()

    bring(packed)

    assert (folder / "set/a.txt").read_bytes() == b"one"
    assert len(server.asked) == 2


def test_changed_file_is_not_overwritten_without_replace(
    bring: Bring, packed: PublicDataset
) -> None:
    folder = bring(packed)
    (folder / "set/a.txt").write_bytes(b"my")

    with raises("already-exists"):
        bring(packed)
    assert (folder / "set/a.txt").read_bytes() == b"my"
    assert ".unpacking" not in names(folder)

    bring(packed, replace=True)
    assert (folder / "set/a.txt").read_bytes() == b"one"


def test_kept_archive_is_reused_by_the_next_call(
    server: Any, bring: Bring, packed: PublicDataset
) -> None:
    folder = bring(packed, keep_archives=True)
    assert (folder / "set.tgz").read_bytes() == server.files["set.tgz"]
    shutil.rmtree(folder / "set")
    server.asked.clear()

    bring(packed)

    assert server.asked == []
    assert (folder / "set/a.txt").is_file()
    assert (folder / "set.tgz").is_file()


def test_manually_downloaded_archive_is_used(
    server: Any, bring: Bring, packed: PublicDataset, tmp_path: Path
) -> None:
    (tmp_path / "got").mkdir()
    (tmp_path / "got/set.tgz").write_bytes(server.files["set.tgz"])

    folder = bring(packed)

    assert server.asked == []
    assert names(folder) == [RECORD, "set", "set.tgz", "set/a.txt", "set/b.txt"]


def test_archive_members_are_renamed_for_the_data_source(
    server: Any, bring: Bring, publish: Any, tar: Any
) -> None:
    sgm = b'<seg id="1">eins</seg>\n<seg id="2">zwei</seg>'
    content = tar((tarfile.TarInfo("dev/t-src.de.sgm"), sgm), (tarfile.TarInfo("dev/t.en"), b"a\n"))
    server.files["dev.tgz"] = content
    members = {"dev/t-src.de.sgm": "t.de", "dev/t.en": "t.en"}

    folder = bring(publish("dev.tgz", content, Archive(limit=LIMIT, members=members)))

    assert names(folder) == [RECORD, "t.de", "t.en"]
    assert (folder / "t.de").read_text() == "eins\nzwei\n"


def test_malicious_archive_leaves_nothing_behind(
    server: Any, bring: Bring, publish: Any, tar: Any, tmp_path: Path
) -> None:
    content = tar((tarfile.TarInfo("good"), b"good"), (tarfile.TarInfo("../../evil"), b"evil"))
    server.files["set.tgz"] = content

    with raises("download-failed"):
        bring(publish("set.tgz", content, Archive(limit=LIMIT)))

    assert not [name for name in names(tmp_path) if "evil" in name or "good" in name]


def test_insufficient_disk_space_is_reported_before_downloading(
    server: Any, bring: Bring, packed: PublicDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=LIMIT))

    with raises("download-failed"):
        bring(packed)

    assert server.asked == []


def test_downloaded_bytes_are_excluded_from_the_required_disk_space(
    server: Any,
    bring: Bring,
    packed: PublicDataset,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=LIMIT))
    (tmp_path / "got").mkdir()
    (tmp_path / "got/set.tgz.part").write_bytes(server.files["set.tgz"])

    assert (bring(packed) / "set/a.txt").is_file()


def test_directory_below_a_file_is_rejected(bring: Bring, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with raises("not-writable", "--dir"):
        bring(folder=tmp_path / "file" / "below")


def test_concurrent_download_into_the_same_directory_is_rejected(
    bring: Bring, tmp_path: Path
) -> None:
    (tmp_path / "got").mkdir()

    with (
        directory_lock_scope(tmp_path / "got"),
        raises("run-locked"),
    ):
        bring()
    bring()


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


@pytest.mark.slow
@pytest.mark.parametrize(("kill", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_interrupted_or_killed_download_resumes_when_restarted(
    server: Any, publish: Any, tmp_path: Path, kill: signal.Signals, code: int
) -> None:
    content = bytes(range(251)) * 40_000
    data = publish("set.bin", content)
    server.files["set.bin"] = content
    # 2 MB arrive, then the server disconnects, and the process waits before it retries.
    server.cuts = [2_000_000, 0, 0, 0]
    command = [
        *(sys.executable, "-c", PROGRAM, str(len(content)), data.files[0].sha256),
        *(f"--dir={tmp_path / 'toy'}", f"--from={server.base}"),
    ]
    part = tmp_path / "toy/set.bin.part"

    def as_in_front() -> None:
        # A shell has its background jobs ignore Ctrl-C, and their children inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=as_in_front
    ) as process:
        deadline = time.monotonic() + 600
        while len(server.asked) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(kill)
        said = process.communicate(timeout=600)[1]
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert ("run the same command again to continue" in said) == (kill == signal.SIGINT)
    assert part.stat().st_size == 2_000_000
    server.cuts = []
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)

    assert done.returncode == 0, done.stderr
    assert server.ranges_asked()[-1] == "bytes=2000000-"
    assert (tmp_path / "toy/set.bin").read_bytes() == content
    assert names(tmp_path / "toy") == ["set.bin"]
