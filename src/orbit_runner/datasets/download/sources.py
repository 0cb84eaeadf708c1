"""Where files come from: the official addresses, a mirror, or a folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from urllib.parse import urlsplit

from orbit_runner.datasets.published import RemoteFile
from orbit_runner.errors import RunnerError


@dataclasses.dataclass(frozen=True)
class Source:
    """Finds a file of the catalogue.

    Attributes:
        base: Address below which a mirror has the files by their names; "" for the official ones.
        folder: A folder that has them, in place of any address.
    """

    base: str = ""
    folder: Path | None = None

    def addresses(self, file: RemoteFile) -> tuple[str, ...]:
        """Returns where a file is, the best address first.

        Args:
            file: The file.
        """
        if self.base:
            return (f"{self.base.rstrip('/')}/{file.name}",)
        return (file.url, *file.others)


def source(text: str | None) -> Source:
    """Makes a source of what `--from` says.

    Args:
        text: `http://…`, `https://…`, a folder, or None for the official addresses.

    Returns:
        The source.

    Raises:
        RunnerError: It is neither.
    """
    if text is None:
        return Source()
    split = urlsplit(text)
    if split.scheme in ("http", "https") and split.netloc:
        return Source(base=text)
    folder = Path(text).expanduser()
    if "://" in text or not folder.is_dir():
        raise RunnerError(f"--from: got {text!r}, expected http://…, https://… or a folder")
    return Source(folder=folder)
