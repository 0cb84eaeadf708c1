"""What the catalogue says about a public data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import urlsplit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Archive:
    """What is taken out of a `.tgz`, `.tar.gz` or `.zip`.

    Attributes:
        limit: The bytes that may come out of it, at most; also the space that is asked for.
        members: Name in the archive to name in the folder; everything, by its own name, if None.
            A `.sgm` that becomes something else is reduced to the text of its segments.
    """

    limit: int
    members: Mapping[str, str] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One published file.

    Attributes:
        url: The official address.
        size: Bytes.
        sha256: Of its bytes, hexadecimal.
        others: More addresses of the same bytes, tried in turn.
        archive: What is taken out of it; None if the file itself is what is wanted.
    """

    url: str
    size: int
    sha256: str
    others: tuple[str, ...] = ()
    archive: Archive | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(urlsplit(self.url).path).name


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicSet:
    """A data set of the catalogue.

    Attributes:
        name: What `runner data get` calls it.
        help: One line.
        terms: What its owners ask for, and where they say so.
        files: What is downloaded.
        results: The files that a data source reads, once all is done.
        folder: The default folder, which is also the `data_dir` of its experiments.
        experiments: Names of the experiments that use it.
        by_hand: For a set that asks for an account: what to do. Nothing is downloaded then.
    """

    name: str
    help: str
    terms: str
    files: tuple[RemoteFile, ...]
    results: tuple[str, ...]
    folder: str
    experiments: tuple[str, ...] = ()
    by_hand: str = ""

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(file.size for file in self.files)


def format_bytes(count: int) -> str:
    """Returns a number of bytes as a person would say it.

    Args:
        count: Bytes.
    """
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"
