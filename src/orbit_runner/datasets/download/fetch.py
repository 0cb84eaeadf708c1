"""Downloads a file from the first address that provides it, with retries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_runner.datasets.download.error_messages import Unreachable
from orbit_runner.datasets.download.errors import DownloadError, Dropped, Unavailable
from orbit_runner.datasets.download.transfer import host, transfer
from orbit_runner.utils.log import note

# Seconds between attempts without progress.
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)


def fetch(
    addresses: Sequence[str],
    part: Path,
    size: int,
    report: Callable[[int], None],
    pauses: Sequence[float] = PAUSES,
) -> None:
    """Downloads a file, or the rest of it, to `part`, which is kept on failure and resumed later.

    `addresses` are tried in order. `report` is called with the bytes so far. `pauses` are the
    seconds to wait before each retry, as long as no new bytes arrive. Raises `DownloadError` with
    the reason for each address.
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
    url: str, part: Path, size: int, report: Callable[[int], None], pauses: Sequence[float]
) -> None:
    furthest = part.stat().st_size if part.is_file() else 0
    begun, attempt = False, 0
    while True:
        try:
            transfer(url, part, size, report)
            return
        except Dropped as error:
            have = part.stat().st_size if part.is_file() else 0
            # Compared with the largest size so far: a server that does not support ranges and
            # always disconnects at the same point makes no progress.
            attempt = 0 if have > furthest else attempt
            begun, furthest = begun or have > furthest, max(have, furthest)
            hopeless = isinstance(error, Unreachable) and not begun
            if hopeless or attempt == len(pauses):
                raise Unavailable(str(error)) from None
            note(f"{host(url)}: {error}; retrying in {pauses[attempt]:g} s")
            time.sleep(pauses[attempt])
            attempt += 1
