"""Archives unpack into their directory; those that would do anything else are rejected."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.datasets.install import extract_sentences, unpack
from tests.support.problems import raises

Tar = Callable[..., bytes]
GOOD = {"set/a.txt": b"one", "set/deep/b.bin": b"\0" * 1000}


def zip_of(*members: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in members:
            archive.writestr(info, content)
    return made.getvalue()


def entry(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    return info


def link(name: str, to: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


def special(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info


def tree(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.fixture
def inside(tmp_path: Path) -> Callable[..., Path]:
    """Unpacks bytes into a separate directory, below one that must not change."""

    def inside_(content: bytes, **how: object) -> Path:
        archive = tmp_path / "outer" / "set.part"
        folder = tmp_path / "outer" / "aside"
        folder.mkdir(parents=True)
        archive.write_bytes(content)
        unpack(archive, folder, **{"limit": 10_000, **how})  # type: ignore[arg-type]
        return folder

    return inside_


@pytest.mark.parametrize("form", ["tar.gz", "tar", "zip"])
def test_valid_archive_is_unpacked_without_executable_bits(
    inside: Callable[..., Path], form: str
) -> None:
    made = io.BytesIO()
    if form == "zip":
        made.write(zip_of(("set/", b""), *GOOD.items()))
    else:
        with tarfile.open(fileobj=made, mode="w:gz" if form == "tar.gz" else "w:") as archive:
            archive.addfile(special("set", tarfile.DIRTYPE))
            for name, content in GOOD.items():
                info = tarfile.TarInfo(f"./{name}")
                info.size, info.mode = len(content), 0o7777
                archive.addfile(info, io.BytesIO(content))

    folder = inside(made.getvalue())

    assert tree(folder) == GOOD
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o7111 for path in folder.rglob("*.*")}
    assert modes == {0}


def test_only_requested_members_are_unpacked(inside: Callable[..., Path], tar: Tar) -> None:
    content = tar(
        (tarfile.TarInfo("./set/a.txt"), b"one"),
        (tarfile.TarInfo("../b"), b"not asked for"),
        (tarfile.TarInfo("set/c"), b"x" * 20_000),
    )

    assert tree(inside(content, members={"set/a.txt": "here.txt"})) == {"here.txt": b"one"}


def test_missing_member_is_reported(inside: Callable[..., Path], tar: Tar) -> None:
    with raises("download-failed"):
        inside(tar((tarfile.TarInfo("a.txt"), b"one")), members={"b.txt": "b.txt", "a.txt": "a"})


NAMES = ["/tmp/evil", "../evil", "a/../../evil", "C:\\evil", "c:evil", "..\\evil", "//host/evil"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["tar", "zip"])
def test_path_outside_the_directory_is_rejected(
    inside: Callable[..., Path], tar: Tar, tmp_path: Path, name: str, form: str
) -> None:
    bad = name.replace("/tmp", str(tmp_path))
    content = tar((tarfile.TarInfo(bad), b"evil")) if form == "tar" else zip_of((bad, b"evil"))

    with raises("download-failed"):
        inside(content)

    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["set.part"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("to", ["/etc", "../..", "a.txt"])
def test_links_are_rejected_before_they_are_followed(
    inside: Callable[..., Path], tar: Tar, tmp_path: Path, kind: bytes, to: str
) -> None:
    content = tar((link("way", to, kind), b""), (tarfile.TarInfo("way/evil"), b"evil"))

    with raises("download-failed"):
        inside(content)

    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]


def test_link_in_a_zip_is_rejected(inside: Callable[..., Path]) -> None:
    with raises("download-failed"):
        inside(zip_of((entry("way", stat.S_IFLNK | 0o777), b"/etc")))


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_rejected(inside: Callable[..., Path], tar: Tar, kind: bytes) -> None:
    with raises("download-failed"):
        inside(tar((special("null", kind), b"")))


def test_device_in_a_zip_is_rejected(inside: Callable[..., Path]) -> None:
    with raises("download-failed"):
        inside(zip_of((entry("null", stat.S_IFCHR | 0o666), b"")))


@pytest.mark.parametrize("form", ["tar", "zip"])
def test_archive_bomb_is_rejected(
    inside: Callable[..., Path], tar: Tar, tmp_path: Path, form: str
) -> None:
    zeros = b"\0" * 5_000_000
    content = tar((tarfile.TarInfo("a"), zeros)) if form == "tar" else zip_of(("a", zeros))
    assert len(content) < 10_000

    with raises("download-failed"):
        inside(content)

    assert sum(path.stat().st_size for path in tmp_path.rglob("a")) <= 10_000


def test_archive_bomb_of_many_files_is_rejected(inside: Callable[..., Path], tar: Tar) -> None:
    parts = [(tarfile.TarInfo(f"a{number}"), b"\0" * 3000) for number in range(4)]

    with raises("download-failed"):
        inside(tar(*parts))


def test_zip_with_false_sizes_is_rejected(inside: Callable[..., Path]) -> None:
    content = bytearray(zip_of(("a", b"\0" * 5_000_000)))
    # The uncompressed size, in the central directory and in the local header.
    at = content.rindex(b"PK\x01\x02") + 24
    content[at : at + 4] = b"\x10\0\0\0"
    content[22:26] = b"\x10\0\0\0"

    with raises("download-failed"):
        inside(bytes(content))


@pytest.mark.parametrize(
    "names", [("a", "a"), ("a", "./a"), ("a", "a/b")], ids=["twice", "spelled twice", "below"]
)
def test_conflicting_member_names_are_rejected(
    inside: Callable[..., Path], tar: Tar, names: tuple[str, str]
) -> None:
    with raises("download-failed"):
        inside(tar(*((tarfile.TarInfo(name), b"one") for name in names)))


@pytest.mark.parametrize("cut", [0, 3, 100, -20])
@pytest.mark.parametrize("form", ["tar", "zip"])
def test_truncated_archive_is_rejected(
    inside: Callable[..., Path], tar: Tar, form: str, cut: int
) -> None:
    random = bytes(range(256)) * 30
    whole = tar((tarfile.TarInfo("a"), random)) if form == "tar" else zip_of(("a", random))

    with raises("download-failed"):
        inside(whole[:cut])


def test_encrypted_zip_is_rejected(inside: Callable[..., Path]) -> None:
    content = bytearray(zip_of(("a", b"one")))
    content[6] |= 1
    content[content.rindex(b"PK\x01\x02") + 8] |= 1

    with raises("download-failed"):
        inside(bytes(content))


def test_sentences_are_extracted_from_sgm(tmp_path: Path) -> None:
    (tmp_path / "a.sgm").write_text(
        '<srcset setid="x"><doc docid="1"><p>\n<seg id="1">Grüße &amp;  mehr. </seg>\n'
        '<seg id="2">Ein <b>\nZeilenumbruch</seg><seg id="3"></seg>\n</p></doc></srcset>\n',
        encoding="utf-8",
    )

    assert extract_sentences(tmp_path / "a.sgm", tmp_path / "a.txt") == 3
    text = (tmp_path / "a.txt").read_text(encoding="utf-8")
    assert text == "Grüße &amp; mehr.\nEin <b> Zeilenumbruch\n\n"
