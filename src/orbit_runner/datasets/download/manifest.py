"""Records the files unpacked from archives, to check later that they are unchanged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orbit_runner.datasets.download.checksums import has_checksum, sha256
from orbit_runner.datasets.public_dataset import RemoteFile

NAME = ".runner_data.json"


def remember(folder: Path, file: RemoteFile, made: Iterable[str]) -> None:
    """Records the files that were unpacked from an archive, relative to the directory."""
    kept = _read_manifest(folder)
    kept[file.sha256] = {
        name: [(folder / name).stat().st_size, sha256(folder / name)] for name in sorted(made)
    }
    aside = folder / f"{NAME}.new"
    aside.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    os.replace(aside, folder / NAME)


def unpacked_files(folder: Path, file: RemoteFile) -> list[str]:
    """Returns the files unpacked from an archive; empty unless all exist unchanged."""
    made = _read_manifest(folder).get(file.sha256)
    if not isinstance(made, dict) or not made:
        return []
    right = (has_checksum(folder / name, size, kept) for name, (size, kept) in made.items())
    return [*made] if all(right) else []


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        kept = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
