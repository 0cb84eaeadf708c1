"""Downloads a public dataset, verifies and unpacks it, and moves it into its directory."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import filecmp
import json
import os
import posixpath
import re
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from orbit_runner.datasets.catalogue import Archive, PublicDataset, RemoteFile, format_bytes
from orbit_runner.datasets.transfer import (
    PAUSES,
    DownloadError,
    FileProgress,
    copy,
    download_verified,
    fetch,
    forget,
    has_checksum,
    sha256,
)
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.utils.log import note, phase

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


@dataclasses.dataclass(frozen=True)
class DownloadSource:
    """Where to get the files of the catalog."""

    base: str = ""  # URL of a mirror with the files by name; "" for the official addresses
    folder: Path | None = None  # directory with the files, instead of any address

    def addresses(self, file: RemoteFile) -> tuple[str, ...]:
        """Returns the addresses of a file, in the order in which to try them."""
        if self.base:
            return (f"{self.base.rstrip('/')}/{file.name}",)
        return (file.url, *file.others)


def parse_source(text: str | None) -> DownloadSource:
    """Returns the source for `--from`: a URL, a directory, or None for the official addresses."""
    if text is None:
        return DownloadSource()
    split = urlsplit(text)
    if split.scheme in ("http", "https") and split.netloc:
        return DownloadSource(base=text)
    directory = Path(text).expanduser()
    if "://" in text or not directory.is_dir():
        raise RunnerError(
            f"got {text!r}, expected http://…, https://… or a directory",
            path="--from",
            code="wrong-type",
        )
    return DownloadSource(folder=directory)


_ASIDE = ".unpacking"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DownloadOptions:
    """Where and how to download a dataset."""

    folder: Path  # created if needed
    source: DownloadSource = DownloadSource()
    replace: bool = False  # whether to overwrite a different file with the same name
    keep_archives: bool = False  # whether to keep archives after they are unpacked
    pauses: Sequence[float] = PAUSES  # seconds before each retry


def download_dataset(data: PublicDataset, options: DownloadOptions) -> bool:
    """Downloads the missing files of a dataset. Returns whether any file was missing."""
    ensure_writable(options.folder)
    with directory_lock_scope(options.folder):
        missing = [file for file in data.files if not _is_there(file, options)]
        check_free(options.folder, sum(_required_space(file, options.folder) for file in missing))
        for file in missing:
            if file.archive is None:
                os.replace(_fetch_verified(file, options), options.folder / file.name)
                forget(_part(file, options.folder))
            else:
                _install_archive(file, file.archive, options)
    return bool(missing)


def _part(file: RemoteFile, directory: Path) -> Path:
    return directory / f"{file.name}.part"


def _is_there(file: RemoteFile, options: DownloadOptions) -> bool:
    """Returns whether the result of a file exists; raises an error if it is a different file."""
    target = options.folder / file.name
    if file.archive is not None:
        is_present = bool(unpacked_files(options.folder, file))
    else:
        is_present = has_checksum(target, file.size, file.sha256)
        if not is_present and target.exists() and not options.replace:
            raise RunnerError(
                f"{target} exists, but is not the published file ({file.size:,} bytes, "
                f"SHA-256 {file.sha256})\nmove it, choose another --dir, or pass --replace",
                code="already-exists",
            )
    if is_present:
        note(f"{file.name}: already present and verified")
    return is_present


def _required_space(file: RemoteFile, directory: Path) -> int:
    """Returns the maximum number of bytes that a file still needs."""
    part = _part(file, directory)
    have = part.stat().st_size if part.is_file() else 0
    if file.archive is not None and (directory / file.name).is_file():
        have = file.size
    return max(0, file.size - have) + (file.archive.limit if file.archive else 0)


def _fetch_verified(file: RemoteFile, options: DownloadOptions) -> Path:
    """Returns the path of the downloaded and verified file, which has the suffix `.part`."""
    part = _part(file, options.folder)
    phase(f"downloading {file.name} ({format_bytes(file.size)})")

    def mismatch(path: Path) -> str:
        got = sha256(path)
        if got == file.sha256:
            return ""
        return (
            f"  got       {path.stat().st_size:,} bytes, SHA-256 {got}\n"
            f"  published {file.size:,} bytes, SHA-256 {file.sha256}"
        )

    download_verified(file.name, part, lambda: _download_part(file, part, options), mismatch)
    return part


def _download_part(file: RemoteFile, part: Path, options: DownloadOptions) -> None:
    report = FileProgress().update
    if options.source.folder is None:
        addresses = options.source.addresses(file)
        fetch(addresses, part, file.size, report, options.pauses)
        return
    origin = options.source.folder / file.name
    try:
        copy(origin, part, report)
    except OSError as error:
        raise DownloadError(f"{origin}: cannot be copied ({error.strerror})") from None


def _install_archive(file: RemoteFile, archive: Archive, options: DownloadOptions) -> None:
    """Downloads an archive, unpacks it in a temporary directory and moves the files into place."""
    kept = options.folder / file.name
    path = kept if has_checksum(kept, file.size, file.sha256) else _fetch_verified(file, options)
    aside = options.folder / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    phase(f"unpacking {file.name}")
    try:
        aside.mkdir()
        names = _unpack(path, aside, archive)
        move_files(names, aside, options.folder, replace=options.replace)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    remember_unpacked(options.folder, file, names)
    if path != kept and options.keep_archives:
        os.replace(path, kept)
    forget(_part(file, options.folder))


def _unpack(path: Path, aside: Path, archive: Archive) -> list[str]:
    """Returns the extracted files, with the text of SGML files instead of these."""
    members = archive.members
    marked = {
        target: f"{target}.sgm"
        for name, target in (members or {}).items()
        if name.endswith(".sgm") and not target.endswith(".sgm")
    }
    if members is not None:
        members = {name: marked.get(target, target) for name, target in members.items()}
    names = unpack(path, aside, limit=archive.limit, members=members)
    for target, source in marked.items():
        extract_sentences(aside / source, aside / target)
    return [name for name in names if name not in marked.values()] + [*marked]


_MANIFEST = ".runner_data.json"


def remember_unpacked(directory: Path, file: RemoteFile, names: Iterable[str]) -> None:
    """Records the files that were unpacked from an archive, relative to the directory."""
    kept = _read_manifest(directory)
    kept[file.sha256] = {
        name: [(directory / name).stat().st_size, sha256(directory / name)]
        for name in sorted(names)
    }
    aside = directory / f"{_MANIFEST}.new"
    aside.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    os.replace(aside, directory / _MANIFEST)


def unpacked_files(directory: Path, file: RemoteFile) -> list[str]:
    """Returns the files unpacked from an archive; empty unless all exist unchanged."""
    entries = _read_manifest(directory).get(file.sha256)
    if not isinstance(entries, dict) or not entries:
        return []
    right = (has_checksum(directory / name, size, kept) for name, (size, kept) in entries.items())
    return [*entries] if all(right) else []


def _read_manifest(directory: Path) -> JsonObject:
    try:
        kept = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def ensure_writable(directory: Path) -> None:
    """Creates a directory if needed; raises an error if it cannot be written to."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunnerError(
            f"cannot create {directory} ({error.strerror})", path="--dir", code="not-writable"
        ) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise RunnerError(f"{directory} is not writable", path="--dir", code="not-writable")


@contextlib.contextmanager
def directory_lock_scope(directory: Path) -> Iterator[None]:
    """Locks a directory against other processes within a `with` block.

    The lock is on the directory itself, so no file is left behind. Raises an error if another
    process has locked it.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunnerError(
                f"{directory}: another `runner data get` is using this directory", code="run-locked"
            ) from None
        except OSError:
            pass  # The file system does not support locks.
        yield
    finally:
        os.close(descriptor)


def check_free(directory: Path, need: int) -> None:
    """Raises an error if the disk has less than `need` bytes of free space."""
    free = shutil.disk_usage(directory).free
    if need > free:
        raise DownloadError(
            f"{directory}: requires {format_bytes(need)}, but only {format_bytes(free)} are free "
            "on its disk"
        )


def move_files(names: Sequence[str], aside: Path, directory: Path, *, replace: bool) -> None:
    """Moves finished files from `aside` to `directory`, which must be on the same disk.

    `names` are the files, relative to both. Unless `replace` is set, raises an error if different
    files with these names exist; then nothing was moved.
    """
    different = [
        name
        for name in names
        if (directory / name).exists() and not _is_same(aside, directory, name)
    ]
    if different and not replace:
        raise RunnerError(
            f"{directory}: these files exist, but differ from the published dataset:\n"
            f"{format_list(different)}\nmove them, choose another --dir, or pass --replace",
            code="already-exists",
        )
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(aside / name, directory / name)


def _is_same(aside: Path, directory: Path, name: str) -> bool:
    there = directory / name
    return there.is_file() and filecmp.cmp(aside / name, there, shallow=False)


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
    archive: Path, directory: Path, *, limit: int, members: Mapping[str, str] | None = None
) -> list[str]:
    """Unpacks an archive into a directory, and nowhere else. Returns the files, relative to it.

    A published archive contains only regular files and directories. An archive with links, devices
    or pipes is rejected as a whole. So is one with a name outside the directory, or with more
    content than it should have.

    The format, zip or tar with any compression, is detected from the content. `directory` should be
    empty: existing files are not overwritten. `limit` is the maximum number of bytes to extract.
    `members` is name in the archive to name in the directory; other files are skipped. None for all
    files.

    Raises `DownloadError` if the archive is damaged, lacks a member or is rejected. Files that
    were already extracted remain in the directory; the caller must delete them.
    """
    label = archive.name.removesuffix(".part")
    try:
        names = _extract_members(archive, directory, limit, members)
    except _Rejected as error:
        raise DownloadError(f"{label}: {error}; the archive was rejected") from None
    except _BROKEN as error:
        reason = str(error) or type(error).__name__
        raise DownloadError(f"{label}: cannot be unpacked ({reason})") from None
    missing = [name for name, target in (members or {}).items() if target not in names]
    if missing:
        raise DownloadError(f"{label}: does not contain {', '.join(missing)}")
    return names


def _extract_members(
    archive: Path, directory: Path, limit: int, members: Mapping[str, str] | None
) -> list[str]:
    names: list[str] = []
    for member in _members(archive):
        name = posixpath.normpath(member.name)
        if members is not None and name not in members:
            continue
        target = members[name] if members is not None else _relative_name(member.name)
        if member.kind == "folder":
            continue
        if member.kind:
            raise _Rejected(f"{member.name!r} is {member.kind}")
        if len(names) == _MOST_FILES:
            raise _Rejected(f"it contains more than {_MOST_FILES:,} files")
        limit -= _write(member, directory / target, limit)
        names.append(target)
    return names


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
    content = member.open()
    done = 0
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
        for info in opened:
            yield _Member(info.name, _tar_kind(info), partial(opened.extractfile, info))


def _tar_kind(info: tarfile.TarInfo) -> str:
    if info.isreg():
        return ""
    if info.isdir():
        return "folder"
    if info.issym() or info.islnk():
        return f"a link to {info.linkname!r}"
    return "a device or a pipe"


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            yield _Member(info.filename, _zip_kind(info), partial(opened.open, info))


def _zip_kind(info: zipfile.ZipInfo) -> str:
    if info.is_dir():
        return "folder"
    # Archives made on Unix have the file mode in the upper 16 bits; others have 0.
    form = stat.S_IFMT(info.external_attr >> 16)
    if form in (0, stat.S_IFREG):
        return ""
    return "a link" if form == stat.S_IFLNK else "a device or a pipe"


_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)


def extract_sentences(source: Path, target: Path) -> int:
    """Writes the text of each segment on a separate line. Returns the number of lines.

    Entities such as `&amp;` are not decoded, as in Moses' `input-from-sgm.perl` and sacreBLEU, so
    that scores are comparable.
    """
    segments = _SEGMENT.findall(source.read_text(encoding="utf-8"))
    lines = [" ".join(text.split()) for text in segments]
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)
