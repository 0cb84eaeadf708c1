"""Errors of downloads."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from orbit_runner import exit_codes
from orbit_runner.datasets.catalogue import format_bytes
from orbit_runner.errors import RunnerError
from orbit_runner.utils.log import detail, note
from orbit_runner.version import __version__


class DownloadError(RunnerError):
    """A file could not be downloaded, although the command is correct."""

    code = "download-failed"
    exit_code = exit_codes.CRASHED


class Dropped(Exception):
    """A transfer ended early; a retry may succeed."""


class Unavailable(Exception):
    """An address does not provide the file; a retry would not help."""


# Timeouts, too many requests, and temporary server errors.
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_ACCOUNT = (401, 403, 407)


class Unreachable(Dropped):
    """No connection was established; worth a retry only if there was one before."""


def translate_error(error: Exception) -> Dropped | Unavailable:
    """Returns the error to raise for one of urllib: `Dropped` if a retry may help."""
    if isinstance(error, urllib.error.HTTPError):
        return _describe_status(error)
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Unavailable(f"its certificate is not trusted ({cause.verify_message})")
    if isinstance(cause, socket.gaierror):
        return Unreachable(f"cannot resolve the host name ({cause.strerror})")
    if isinstance(cause, ConnectionRefusedError):
        return Unreachable("the connection was refused")
    if isinstance(cause, TimeoutError):
        return Unreachable("the host does not respond")
    if isinstance(cause, ValueError):
        return Unavailable(f"not a valid URL ({cause})")
    return Unreachable(f"cannot connect ({cause or type(cause).__name__})")


def _describe_status(error: urllib.error.HTTPError) -> Dropped | Unavailable:
    status = f"the server returned {error.code} {error.reason}".rstrip()
    if error.code == 416:
        return Dropped(status)
    if error.code in _PASSING:
        return Dropped(status)
    if error.code in _ACCOUNT:
        return Unavailable(f"{status}: the server or a proxy requires a login")
    return Unavailable(status)


_PIECE = 1 << 18
_TIMEOUT_SECONDS = 30.0
_PARTIAL = 206
_RANGE_WRONG = 416
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
# Called with the bytes so far, and those of the whole file.
Report = Callable[[int, int], None]


def transfer(url: str, part: Path, size: int | None, report: Report) -> None:
    """Requests the missing bytes of a file and appends them to `part`.

    `If-Range` (RFC 9110, 13.1.5) asks for the rest only if the file is still the one that `part`
    comes from. If it is not, or if the server does not support ranges, the server sends the whole
    file, which replaces `part`.

    `size` is that of the whole file; None if only the server knows it.
    Raises `Dropped` if the connection broke; `part` keeps what arrived. Raises `Unavailable` if the
    address does not provide this file.
    """
    have = _partial_size(part, size)
    if have == size:
        return
    request = urllib.request.Request(url, headers=_headers(url, part, have))
    try:
        # Not `urlopen`, which reads the proxies of the environment only once per process.
        response = urllib.request.build_opener().open(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == _RANGE_WRONG:
            forget(part)
        raise translate_error(error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise translate_error(error) from None
    with response:
        start, total = _extent(response, have, size)
        if start == 0:
            _remember(part, url, response.headers)
        _receive(response, part, start, total, report)


def _marker(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def forget(part: Path) -> None:
    """Deletes a partial file and its metadata."""
    part.unlink(missing_ok=True)
    _marker(part).unlink(missing_ok=True)


def _partial_size(part: Path, size: int | None) -> int:
    """Returns the number of bytes in the partial file; deletes it if it is too large."""
    have = part.stat().st_size if part.is_file() else 0
    if size is not None and have > size:
        forget(part)
        return 0
    return have


def _headers(url: str, part: Path, have: int) -> dict[str, str]:
    headers = {"User-Agent": f"orbit-runner/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        validator = _validator(url, part)
        if validator:
            headers["If-Range"] = validator
    return headers


def _validator(url: str, part: Path) -> str:
    """Returns the validator that the same address sent for its file, or "" if unknown."""
    try:
        kept = json.loads(_marker(part).read_text(encoding="utf-8"))
        return str(kept["validator"]) if kept["url"] == url else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _remember(part: Path, url: str, headers: Mapping[str, str]) -> None:
    part.unlink(missing_ok=True)
    tag = headers.get("ETag") or ""
    # A weak ETag means that two files are equivalent, not that their bytes are equal.
    validator = headers.get("Last-Modified") or "" if tag.startswith("W/") or not tag else tag
    _marker(part).write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")


def _extent(response: http.client.HTTPResponse, have: int, size: int | None) -> tuple[int, int]:
    """Returns the position of the first byte to come, and the size of the whole file.

    Raises `Unavailable` if the size is wrong, or if neither side knows it.
    """
    start = 0
    whole = response.headers.get("Content-Length") or ""
    if response.status == _PARTIAL:
        match = _RANGE.match(response.headers.get("Content-Range") or "")
        if not match or int(match[1]) != have:
            raise Unavailable("the server did not send the requested range")
        start = have
        whole = match[2]
    if size is None:
        if not whole.isdigit():
            raise Unavailable("the server does not send the size of the file")
        return start, int(whole)
    if whole.isdigit() and int(whole) != size:
        kind = response.headers.get_content_type()
        page = "; it may be a login or proxy page" if kind == "text/html" else ""
        raise Unavailable(
            f"the file there has {int(whole):,} bytes, the published file {size:,}{page}"
        )
    return start, size


def _receive(
    response: http.client.HTTPResponse, part: Path, start: int, size: int, report: Report
) -> None:
    done = start
    try:
        file = part.open("ab", buffering=0)
    except OSError as error:
        raise DownloadError(f"{part}: cannot be written ({error})", code="not-writable") from None
    with file:
        report(done, size)
        while done < size and (piece := _read_piece(response)):
            _write(file, part, piece[: size - done + 1])
            done += len(piece)
            report(min(done, size), size)
    if done < size:
        raise Dropped(f"the connection closed after {done:,} of {size:,} bytes")
    if done > size:
        raise Unavailable(f"the file there is larger than the published file ({size:,} bytes)")


def _read_piece(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_PIECE)
    except (OSError, http.client.HTTPException) as error:
        raise Dropped(f"the connection was lost ({error or type(error).__name__})") from None


def _write(file: IO[bytes], part: Path, piece: bytes) -> None:
    try:
        left = memoryview(piece)
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise DownloadError(f"{part}: cannot be written ({error})", code="not-writable") from None


def host(url: str) -> str:
    """Returns the host of a URL, with its port if the URL has one."""
    return urlsplit(url).netloc.rpartition("@")[2]


# Seconds between attempts without progress.
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)


def fetch(
    addresses: Sequence[str],
    part: Path,
    size: int | None,
    report: Report,
    pauses: Sequence[float] = PAUSES,
) -> None:
    """Downloads a file, or the rest of it, to `part`, which is kept on failure and resumed later.

    `addresses` are tried in order. `size` is as in `transfer`. `pauses` are the seconds to wait
    before each retry, as long as no new bytes arrive. Raises `DownloadError` with the reason for
    each address.
    """
    reasons = []
    for url in addresses:
        try:
            _download_with_retries(url, part, size, report, pauses)
            return
        except Unavailable as error:
            reasons.append(f"{host(url)}: {error}\n  {url}")
    raise DownloadError("\n".join(reasons))


def _download_with_retries(
    url: str, part: Path, size: int | None, report: Report, pauses: Sequence[float]
) -> None:
    furthest = part.stat().st_size if part.is_file() else 0
    begun = False
    attempt = 0
    while True:
        try:
            transfer(url, part, size, report)
            return
        except Dropped as error:
            have = part.stat().st_size if part.is_file() else 0
            # Compared with the largest size so far: a server that does not support ranges and
            # always disconnects at the same point makes no progress.
            attempt = 0 if have > furthest else attempt
            begun = begun or have > furthest
            furthest = max(have, furthest)
            hopeless = isinstance(error, Unreachable) and not begun
            if hopeless or attempt == len(pauses):
                raise Unavailable(str(error)) from None
            note(f"{host(url)}: {error}; retrying in {pauses[attempt]:g} s")
            time.sleep(pauses[attempt])
            attempt += 1


def download_verified(
    name: str, part: Path, download: Callable[[], None], mismatch: Callable[[Path], str]
) -> None:
    """Downloads a file to `part`, or the rest of it, and verifies it.

    `name` is that of the file in messages. `download` appends to `part`. `mismatch` returns how
    `part` differs from the published file, or "" if it does not. Raises `DownloadError` if it
    differs; `part` is then deleted.
    """
    have = part.stat().st_size if part.is_file() else 0
    if have:
        note(f"{name}: resuming after {format_bytes(have)}")
    download()
    problem = mismatch(part)
    if problem and have:
        note(f"{name}: the resumed download is corrupt; starting over")
        forget(part)
        download()
        problem = mismatch(part)
    if problem:
        forget(part)
        raise DownloadError(
            f"{name}: differs from the published file, so it was removed\n{problem}",
            code="wrong-checksum",
        )


_COPY_PIECE = 1 << 20


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_COPY_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def has_checksum(path: Path, size: int, expected: str) -> bool:
    """Returns whether a file exists and has this size and SHA-256 (hexadecimal)."""
    return path.is_file() and path.stat().st_size == size and sha256(path) == expected


def copy(source: Path, target: Path, report: Report) -> None:
    """Copies a file, overwriting `target`."""
    with source.open("rb") as reader, target.open("wb") as writer:
        done = 0
        total = source.stat().st_size
        while piece := reader.read(_COPY_PIECE):
            writer.write(piece)
            done += len(piece)
            report(done, total)


_REPORT_SECONDS = 0.2


class FileProgress:
    """Logs how far the download of a file is, a few times a second."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._first: int | None = None
        self._last = 0.0

    def update(self, done: int, total: int) -> None:
        """Logs the progress if a message is due; the arguments are those of `Report`."""
        now = time.monotonic()
        if self._first is None:
            self._first = done
            self._since = now
        if now - self._last < _REPORT_SECONDS:
            return
        self._last = now
        text = f"{format_bytes(done)} of {format_bytes(total)}"
        seconds = now - self._since
        new = done - self._first
        if seconds > 0 and new > 0:
            rate = new / seconds
            text += f", {format_bytes(int(rate))}/s, {(total - done) / rate:.0f} s left"
        detail(text, done / max(1, total))
