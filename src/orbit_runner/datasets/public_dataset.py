"""Descriptions of public datasets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import urlsplit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Archive:
    """What is extracted from a `.tgz`, `.tar.gz` or `.zip`."""

    limit: int  # maximum number of bytes to extract, and the disk space that is required
    # Name in the archive to name in the directory; None for all files with their own names. A
    # `.sgm` file whose new name has another suffix is reduced to the text of its segments.
    members: Mapping[str, str] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A published file."""

    url: str  # official address
    size: int  # bytes
    sha256: str  # hexadecimal
    others: tuple[str, ...] = ()  # further addresses of the same bytes, tried in order
    archive: Archive | None = None  # None if the file itself is the result

    @property
    def name(self) -> str:
        """The file name in the URL."""
        return PurePosixPath(urlsplit(self.url).path).name


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicDataset:
    """A dataset of the catalog."""

    name: str
    help: str  # one line
    terms: str  # conditions of its owners, and where they are published
    files: tuple[RemoteFile, ...]
    results: tuple[str, ...]  # files that a data source reads
    folder: str  # default directory, and the `data_dir` of its experiments
    experiments: tuple[str, ...] = ()
    manual_steps: str = ""  # instructions if it requires an account; nothing is downloaded then

    @property
    def size(self) -> int:
        """The number of bytes to download."""
        return sum(file.size for file in self.files)


def format_bytes(count: int) -> str:
    """Returns a number of bytes as text, such as `1.5 MB`."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"
