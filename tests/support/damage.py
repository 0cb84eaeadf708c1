"""Ways to damage a checkpoint file, and to change its record."""

import json
from pathlib import Path
from typing import Any

from orbit_runner.checkpoint.record import _checksum_of

DATA = "data-00000-of-00001"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def change_record(path: Path, **changes: Any) -> dict[str, Any]:
    """Writes a record with other values and the right checksum. Returns the values before."""
    before: dict[str, Any] = json.loads(path.read_text())
    values = {**before, **changes}
    del values["checksum"]
    path.write_text(json.dumps({**values, "checksum": _checksum_of(values)}))
    return before
