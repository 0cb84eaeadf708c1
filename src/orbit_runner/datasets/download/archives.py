"""Unpacks archives into a directory, and nowhere else.

A published archive contains only regular files and directories. An archive with links, devices or
pipes is rejected as a whole. So is one with a name outside the directory, or with more content than
it should have.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO

from orbit_runner.datasets.download.errors import DownloadError

_PIECE = 1 << 18
_MOST_FILES = 100_000
_DRIVE = re.compile(r"[A-Za-z]:")
# First bytes of a zip file, and of an empty one.
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError,
    # Raised by zipfile for encryption and unknown compression methods.
    RuntimeError, NotImplementedError,
    # Raised by both for damaged names and numbers.
    ValueError, IndexError, KeyError, OverflowError, struct.error,
)  # fmt: skip


class _Rejected(Exception):
    """The reason why an archive is rejected."""


@dataclasses.dataclass(frozen=True)
class _Member:
    name: str
    kind: str
    open: Callable[[], IO[bytes] | None]


def unpack(
    archive: Path, folder: Path, *, limit: int, members: Mapping[str, str] | None = None
) -> list[str]:
    """Unpacks an archive. Returns the extracted files, relative to the directory.

    The format, zip or tar with any compression, is detected from the content. `folder` should be
    empty: existing files are not overwritten. `limit` is the maximum number of bytes to extract.
    `members` is name in the archive to name in the directory; other files are skipped. None for all
    files.

    Raises `DownloadError` if the archive is damaged, lacks a member or is rejected. Files that
    were already extracted remain in the directory; the caller must delete them.
    """
    label = archive.name.removesuffix(".part")
    try:
        made = _unpack(archive, folder, limit, members)
    except _Rejected as error:
        raise DownloadError(f"{label}: {error}; the archive was rejected") from None
    except _BROKEN as error:
        reason = str(error) or type(error).__name__
        raise DownloadError(f"{label}: cannot be unpacked ({reason})") from None
    missing = [name for name, target in (members or {}).items() if target not in made]
    if missing:
        raise DownloadError(f"{label}: does not contain {', '.join(missing)}")
    return made


def _unpack(
    archive: Path, folder: Path, limit: int, members: Mapping[str, str] | None
) -> list[str]:
    made: list[str] = []
    for member in _members(archive):
        name = posixpath.normpath(member.name)
        if members is not None and name not in members:
            continue
        target = members[name] if members is not None else _relative_name(member.name)
        if member.kind == "folder":
            continue
        if member.kind:
            raise _Rejected(f"{member.name!r} is {member.kind}")
        if len(made) == _MOST_FILES:
            raise _Rejected(f"it contains more than {_MOST_FILES:,} files")
        limit -= _write(member, folder / target, limit)
        made.append(target)
    return made


def _relative_name(name: str) -> str:
    """Returns a name relative to the directory; raises an error if it leads out of it."""
    parts = name.rstrip("/").split("/")
    if name.startswith("/") or _DRIVE.match(name) or "\\" in name or "\0" in name:
        raise _Rejected(f"{name!r} is not a relative path")
    if ".." in parts:
        raise _Rejected(f"{name!r} points outside the directory")
    return "/".join(part for part in parts if part not in ("", "."))


def _write(member: _Member, target: Path, limit: int) -> int:
    """Writes a member to a new file and returns the number of bytes."""
    content, done = member.open(), 0
    if content is None:
        raise _Rejected(f"{member.name!r} has no content")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = target.open("xb")
    except FileExistsError:
        raise _Rejected(f"{member.name!r} appears twice") from None
    with content, file:
        # Counted while reading, because the size in the header may be wrong.
        while piece := content.read(_PIECE):
            done += len(piece)
            if done > limit:
                raise _Rejected("it unpacks to more data than the published archive")
            file.write(piece)
    return done


def _members(archive: Path) -> Iterator[_Member]:
    with archive.open("rb") as file:
        first = file.read(4)
    return _zip_members(archive) if first in _ZIP else _tar_members(archive)


def _tar_members(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive) as opened:
        for found in opened:
            yield _Member(found.name, _tar_kind(found), partial(opened.extractfile, found))


def _tar_kind(found: tarfile.TarInfo) -> str:
    if found.isreg():
        return ""
    if found.isdir():
        return "folder"
    if found.issym() or found.islnk():
        return f"a link to {found.linkname!r}"
    return "a device or a pipe"


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as opened:
        for found in opened.infolist():
            yield _Member(found.filename, _zip_kind(found), partial(opened.open, found))


def _zip_kind(found: zipfile.ZipInfo) -> str:
    if found.is_dir():
        return "folder"
    # Archives made on Unix have the file mode in the upper 16 bits; others have 0.
    form = stat.S_IFMT(found.external_attr >> 16)
    if form in (0, stat.S_IFREG):
        return ""
    return "a link" if form == stat.S_IFLNK else "a device or a pipe"
