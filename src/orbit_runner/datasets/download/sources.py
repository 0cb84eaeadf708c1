"""The sources of files: the official addresses, a mirror, or a directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from urllib.parse import urlsplit

from orbit_runner.datasets.public_dataset import RemoteFile
from orbit_runner.errors import RunnerError


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
    folder = Path(text).expanduser()
    if "://" in text or not folder.is_dir():
        raise RunnerError(f"--from: got {text!r}, expected http://…, https://… or a directory")
    return DownloadSource(folder=folder)
