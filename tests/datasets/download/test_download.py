"""A downloaded dataset is verified, unpacked and complete, and no other file is overwritten."""

import hashlib
import io
import multiprocessing
import os
import signal
import tarfile
import zipfile

import pytest

from orbit_runner.datasets.catalogue import PublicDataset, RemoteFile
from orbit_runner.datasets.download import DownloadError, address_of, download_dataset, fetch
from tests.support.problems import raises

CONTENT = bytes(range(251)) * 4000


@pytest.fixture
def mirror(tmp_path):
    """A directory with files under their published names."""
    folder = tmp_path / "my mirror"
    folder.mkdir()
    return folder


@pytest.fixture
def got(tmp_path):
    """The directory that datasets are downloaded into."""
    return tmp_path / "got"


def download(data, directory, mirror):
    return download_dataset(data, directory, base=address_of(str(mirror)))


def published(name, content, *, is_archive=False, members=None, results=()):
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


def tar_of(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


PACKED = {"set/a.txt": b"one", "set/b.txt": b"two"}


@pytest.fixture
def packed(mirror):
    """A published tar.gz of two files in a directory."""
    (mirror / "set.tgz").write_bytes(tar_of(PACKED))
    return published("set.tgz", tar_of(PACKED), is_archive=True, results=[*PACKED])


def test_file_is_downloaded_once(mirror, got):
    (mirror / "set.bin").write_bytes(CONTENT)
    data = published("set.bin", CONTENT)

    assert download(data, got, mirror)
    (mirror / "set.bin").unlink()
    assert not download(data, got, mirror)

    assert (got / "set.bin").read_bytes() == CONTENT
    assert names(got) == ["set.bin"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "download-failed"),
        (CONTENT[:-1], "download-failed"),
        (CONTENT[::-1], "wrong-checksum"),
        (CONTENT + b"more", "download-failed"),
        (None, "download-failed"),
    ],
)
def test_a_part_of_a_file_or_another_file_never_counts_as_the_file(mirror, got, content, code):
    if content is not None:
        (mirror / "set.bin").write_bytes(content)

    with raises(code):
        download(published("set.bin", CONTENT), got, mirror)
    assert names(got) == []


@pytest.mark.promise("commands", "a download that is killed leaves no file, and can be repeated")
@pytest.mark.slow
def test_killed_download_leaves_no_file_and_can_be_repeated(mirror, got):
    data = published("set.bin", CONTENT)
    os.mkfifo(mirror / "set.bin")
    process = multiprocessing.get_context("spawn").Process(
        target=download, args=(data, got, mirror)
    )
    process.start()
    with (mirror / "set.bin").open("wb") as pipe:  # Waits for the reader.
        pipe.write(CONTENT[:500_000])
        pipe.flush()
        process.kill()
        process.join()

    assert process.exitcode == -signal.SIGKILL
    assert not (got / "set.bin").exists()
    (mirror / "set.bin").unlink()
    (mirror / "set.bin").write_bytes(CONTENT)
    assert download(data, got, mirror)
    assert (got / "set.bin").read_bytes() == CONTENT


def test_errors_say_which_address_failed_and_why(tmp_path):
    for url, reason in (
        ("http://127.0.0.1:9/set.bin", "refused"),
        ("http://nowhere.invalid/set.bin", ""),
    ):
        with pytest.raises(DownloadError) as caught:
            fetch(url, tmp_path / "set.bin", 5, "")
        assert url in str(caught.value)
        assert reason in str(caught.value)
        assert "urlopen" not in str(caught.value)


def test_archive_is_unpacked_once_and_not_kept(mirror, packed, got):
    assert download(packed, got, mirror)
    assert not download(packed, got, mirror)

    assert names(got) == ["set", *PACKED]
    assert {name: (got / name).read_bytes() for name in PACKED} == PACKED


def test_zip_is_unpacked(mirror, got):
    with zipfile.ZipFile(mirror / "set.zip", "w") as archive:
        for name, content in PACKED.items():
            archive.writestr(name, content)
    data = published("set.zip", (mirror / "set.zip").read_bytes(), is_archive=True)

    download(data, got, mirror)

    assert {name: (got / name).read_bytes() for name in PACKED} == PACKED


@pytest.mark.parametrize("is_archive", [True, False])
def test_different_file_is_not_overwritten(is_archive, mirror, packed, got):
    (mirror / "set.bin").write_bytes(CONTENT)
    data = packed if is_archive else published("set.bin", CONTENT)
    path = got / ("set/a.txt" if is_archive else "set.bin")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"my")

    with raises("already-exists"):
        download(data, got, mirror)

    assert path.read_bytes() == b"my"


def test_archive_members_are_renamed_for_the_data_source(mirror, got):
    sgm = b'<seg id="1">eins &amp;\n\n 1</seg>\n<hr><SEG id="2">zwei</SEG>'
    content = tar_of({"./dev/t-src.de.sgm": sgm, "dev/t.en": b"a\n", "dev/other": b""})
    (mirror / "dev.tgz").write_bytes(content)
    members = {"dev/t-src.de.sgm": "t.de", "dev/t.en": "t.en"}

    download(published("dev.tgz", content, is_archive=True, members=members), got, mirror)

    assert names(got) == ["t.de", "t.en"]
    assert (got / "t.de").read_text() == "eins &amp; 1\nzwei\n"
    data = published("dev.tgz", content, is_archive=True, members={"dev/t.fr": "t.fr"})
    with raises("download-failed"):
        download(data, got, mirror)
    assert names(got) == ["t.de", "t.en"]


@pytest.mark.parametrize(
    "content",
    [tar_of({"good": b"good", "../../evil": b"evil"}), tar_of(PACKED)[:-20], b"no archive"],
)
def test_archive_that_leads_outside_or_is_damaged_leaves_nothing(mirror, got, content):
    (mirror / "set.tgz").write_bytes(content)

    with raises("download-failed"):
        download(published("set.tgz", content, is_archive=True), got / "a", mirror)
    assert names(got) == ["a"]


@pytest.mark.parametrize("text", ["ftp://x/y", "nowhere", "http://"])
def test_invalid_source_is_rejected(text):
    with raises("wrong-type", "--from"):
        address_of(text)
