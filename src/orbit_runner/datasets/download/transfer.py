"""Downloads the rest of a file in one HTTP request."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from orbit_runner import __version__
from orbit_runner.datasets.download.error_messages import translate_error
from orbit_runner.datasets.download.errors import DownloadError, Dropped, Unavailable

_PIECE = 1 << 18
_TIMEOUT_SECONDS = 30.0
_PARTIAL, _RANGE_WRONG = 206, 416
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
Report = Callable[[int], None]


def transfer(
    url: str, part: Path, size: int, report: Report, timeout: float = _TIMEOUT_SECONDS
) -> None:
    """Requests the missing bytes of a file and appends them to `part`.

    `If-Range` (RFC 9110, 13.1.5) asks for the rest only if the file is still the one that `part`
    comes from. If it is not, or if the server does not support ranges, the server sends the whole
    file, which replaces `part`.

    `size` is that of the whole file. `report` is called with the number of bytes in `part`.
    `timeout` is the seconds without data. Raises `Dropped` if the connection broke; `part` keeps
    what arrived. Raises `Unavailable` if the address does not provide this file.
    """
    have = _partial_size(part, size)
    if have == size:
        return
    request = urllib.request.Request(url, headers=_headers(url, part, have))
    try:
        # Not `urlopen`, which reads the proxies of the environment only once per process.
        response = urllib.request.build_opener().open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == _RANGE_WRONG:
            forget(part)
        raise translate_error(error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise translate_error(error) from None
    with response:
        start = _start_position(response, have, size)
        if start == 0:
            _remember(part, url, response.headers)
        _receive(response, part, start, size, report)


def _marker(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def forget(part: Path) -> None:
    """Deletes a partial file and its metadata."""
    part.unlink(missing_ok=True)
    _marker(part).unlink(missing_ok=True)


def _partial_size(part: Path, size: int) -> int:
    """Returns the number of bytes in the partial file; deletes it if it is too large."""
    have = part.stat().st_size if part.is_file() else 0
    if have > size:
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


def _start_position(response: http.client.HTTPResponse, have: int, size: int) -> int:
    """Returns the position of the first byte to come; raises an error if the size is wrong."""
    start, whole = 0, response.headers.get("Content-Length") or ""
    if response.status == _PARTIAL:
        found = _RANGE.match(response.headers.get("Content-Range") or "")
        if not found or int(found[1]) != have:
            raise Unavailable("the server did not send the requested range")
        start, whole = have, found[2]
    if whole.isdigit() and int(whole) != size:
        kind = response.headers.get_content_type()
        page = "; it may be a login or proxy page" if kind == "text/html" else ""
        raise Unavailable(
            f"the file there has {int(whole):,} bytes, the published file {size:,}{page}"
        )
    return start


def _receive(
    response: http.client.HTTPResponse, part: Path, start: int, size: int, report: Report
) -> None:
    done = start
    try:
        file = part.open("ab", buffering=0)
    except OSError as error:
        raise DownloadError(f"{part}: cannot be written ({error})") from None
    with file:
        report(done)
        while done < size and (piece := _read_piece(response)):
            _write(file, part, piece[: size - done + 1])
            done += len(piece)
            report(min(done, size))
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
        raise DownloadError(f"{part}: cannot be written ({error})") from None


def host(url: str) -> str:
    """Returns the host of a URL, with its port if the URL has one."""
    return urlsplit(url).netloc.rpartition("@")[2]
