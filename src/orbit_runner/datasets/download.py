"""Downloads a public dataset, verifies and unpacks it, and moves it into its directory."""

from __future__ import annotations

import filecmp
import hashlib
import http.client
import os
import posixpath
import re
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from orbit_runner import exit_codes
from orbit_runner.datasets.catalogue import PublicDataset, RemoteFile, format_bytes
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.utils.files import sha256_of
from orbit_runner.utils.log import detail, note, phase
from orbit_runner.version import __version__

_PIECE = 1 << 20
_TIMEOUT_SECONDS = 30.0
_REPORT_SECONDS = 0.2
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)


class DownloadError(RunnerError):
    """A file could not be downloaded, although the command is correct."""

    code = "download-failed"
    exit_code = exit_codes.CRASHED


def address_of(text: str | None) -> str:
    """Returns the address for `--from`, a URL or a directory; "" for the official addresses."""
    if text is None:
        return ""
    split = urlsplit(text)
    if split.scheme in ("http", "https") and split.netloc:
        return text.rstrip("/")
    directory = Path(text).expanduser()
    if "://" in text or not directory.is_dir():
        raise RunnerError(
            f"got {text!r}, expected http://…, https://… or a directory",
            path="--from",
            code="wrong-type",
        )
    return directory.resolve().as_uri()


def download_dataset(data: PublicDataset, directory: Path, *, base: str = "") -> bool:
    """Downloads the missing files of a dataset. Returns whether any file was missing.

    Args:
        data: The dataset.
        directory: Where its files belong; created if needed. A file there is always complete,
            because it is moved there after it was verified and unpacked.
        base: The address of another copy of the files, which have the same names there.
    """
    _ensure_writable(directory)
    missing = [file for file in data.files if not _is_there(file, data, directory)]
    for file in missing:
        with tempfile.TemporaryDirectory(prefix=".download-", dir=directory) as aside:
            path = Path(aside) / file.name
            phase(f"downloading {file.name} ({format_bytes(file.size)})")
            fetch(f"{base}/{file.name}" if base else file.url, path, file.size, file.sha256)
            if not file.is_archive:
                os.replace(path, directory / file.name)
                continue
            phase(f"unpacking {file.name}")
            unpacked = Path(aside) / "unpacked"
            _move_files(unpack(path, unpacked, file), unpacked, directory)
    return bool(missing)


def fetch(url: str, path: Path, size: int, sha256: str) -> None:
    """Downloads a file. Raises `DownloadError` if it cannot be downloaded, or is another one.

    `size` and `sha256` (hexadecimal) are those of the published file.
    """
    request = urllib.request.Request(url, headers={"User-Agent": f"orbit-runner/{__version__}"})
    digest, num_bytes, reported = hashlib.sha256(), 0, 0.0
    try:
        with (
            urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response,
            path.open("wb") as file,
        ):
            # A file that is too large is not read to its end.
            while num_bytes <= size and (piece := response.read(_PIECE)):
                file.write(piece)
                digest.update(piece)
                num_bytes += len(piece)
                if time.monotonic() - reported > _REPORT_SECONDS:
                    reported = time.monotonic()
                    detail(f"{format_bytes(num_bytes)} of {format_bytes(size)}", num_bytes / size)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if type(error) is urllib.error.URLError else error
        raise DownloadError(f"{url}: cannot be downloaded ({reason})") from None
    if num_bytes != size:
        raise DownloadError(f"{url}: got {num_bytes:,} bytes, expected {size:,}")
    if sha256 != digest.hexdigest():
        raise DownloadError(
            f"{url}: differs from the published file\n"
            f"  got       SHA-256 {digest.hexdigest()}\n  published SHA-256 {sha256}",
            code="wrong-checksum",
        )


def unpack(archive: Path, directory: Path, file: RemoteFile) -> list[str]:
    """Unpacks an archive into a new directory. Returns the files, relative to it.

    Raises `DownloadError` if it cannot be unpacked or lacks a member.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(directory)
        else:
            _unpack_tar(archive, directory, file)
        if file.members is None:
            paths = (path for path in directory.rglob("*") if path.is_file())
            return sorted(path.relative_to(directory).as_posix() for path in paths)
        for name, target in file.members.items():
            if Path(name).suffix == ".sgm":
                extract_sentences(directory / name, directory / target)
            else:
                os.replace(directory / name, directory / target)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DownloadError(f"{file.name}: cannot be unpacked ({error})") from None
    return [*file.members.values()]


def _unpack_tar(archive: Path, directory: Path, file: RemoteFile) -> None:
    with tarfile.open(archive) as opened:
        for info in opened:
            if file.members is None or posixpath.normpath(info.name) in file.members:
                opened.extract(info, directory, filter="data")


def extract_sentences(source: Path, target: Path) -> None:
    """Writes the text of each segment of an SGML file on a separate line.

    Entities such as `&amp;` are not decoded, as in Moses' `input-from-sgm.perl` and sacreBLEU, so
    that scores are comparable.
    """
    segments = _SEGMENT.findall(source.read_text(encoding="utf-8"))
    lines = [" ".join(text.split()) for text in segments]
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _is_there(file: RemoteFile, data: PublicDataset, directory: Path) -> bool:
    """Returns whether the result of a file exists; raises an error if it is a different file."""
    if file.is_archive:
        names = data.results if file.members is None else file.members.values()
        is_present = all((directory / name).is_file() for name in names)
    else:
        target = directory / file.name
        is_present = target.is_file()
        if is_present and sha256_of(target) != file.sha256:
            raise RunnerError(
                f"{target} exists, but is not the published file ({file.size:,} bytes, "
                f"SHA-256 {file.sha256})\nmove it, or choose another --dir",
                code="already-exists",
            )
    if is_present:
        note(f"{file.name}: already present")
    return is_present


def _ensure_writable(directory: Path) -> None:
    """Creates a directory if needed; raises an error if it cannot be written to."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunnerError(
            f"cannot create {directory} ({error.strerror})", path="--dir", code="not-writable"
        ) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise RunnerError(f"{directory} is not writable", path="--dir", code="not-writable")


def _move_files(names: Sequence[str], aside: Path, directory: Path) -> None:
    """Moves complete files; raises an error first if that would overwrite a different one."""
    different = [
        name
        for name in names
        if (directory / name).exists()
        and not filecmp.cmp(aside / name, directory / name, shallow=False)
    ]
    if different:
        raise RunnerError(
            f"{directory}: these files exist, but differ from the published dataset:\n"
            f"{format_list(different)}\nmove them, or choose another --dir",
            code="already-exists",
        )
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(aside / name, directory / name)
