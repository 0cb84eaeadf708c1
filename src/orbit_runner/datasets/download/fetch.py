"""Fetches a file from the first address that gives it, and does not give up at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.datasets.download.error_messages import Unreachable
from orbit_runner.datasets.download.errors import DownloadError, Dropped, Unavailable
from orbit_runner.datasets.download.progress import Progress
from orbit_runner.datasets.download.transfer import host, transfer

# Seconds between attempts that brought nothing new.
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)


def fetch(
    addresses: Sequence[str],
    part: Path,
    size: int,
    progress: Progress,
    pauses: Sequence[float] = PAUSES,
) -> None:
    """Fetches a file, or the rest of it.

    Args:
        addresses: Where it is, the official address first.
        part: Where it goes; kept on failure, for the next time.
        size: Its bytes.
        progress: Who is told.
        pauses: Seconds to wait before each new attempt, as long as nothing new arrives.

    Raises:
        DownloadError: No address gives it. The message says why, for each.
    """
    reasons = []
    for url in addresses:
        try:
            _persist(url, part, size, progress, pauses)
            return
        except Unavailable as error:
            reasons.append(f"{host(url)}: {error}\n  {url}")
    raise DownloadError("\n".join(reasons))


def _persist(url: str, part: Path, size: int, progress: Progress, pauses: Sequence[float]) -> None:
    furthest = part.stat().st_size if part.is_file() else 0
    begun, attempt = False, 0
    while True:
        try:
            transfer(url, part, size, progress.at)
            return
        except Dropped as error:
            have = part.stat().st_size if part.is_file() else 0
            # Counted from the furthest point: a server without ranges that always breaks off at
            # the same place brings nothing new.
            attempt = 0 if have > furthest else attempt
            begun, furthest = begun or have > furthest, max(have, furthest)
            hopeless = isinstance(error, Unreachable) and not begun
            if hopeless or attempt == len(pauses):
                raise Unavailable(str(error)) from None
            progress.note(f"{host(url)}: {error}; again in {pauses[attempt]:g} s")
            time.sleep(pauses[attempt])
            attempt += 1
