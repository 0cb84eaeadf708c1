"""What is noted of a checkpoint beside it: fingerprints, and what it was made with."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.utils.files import read_json_object, write_whole

_BLOCK = 2**20
_CHECKSUM = "checksum"


@dataclasses.dataclass(frozen=True)
class FileMark:
    """How a file looked when it was written.

    Attributes:
        bytes: Its size.
        sha256: The SHA-256 of its content.
    """

    bytes: int
    sha256: str

    def damage(self, path: Path) -> str:
        """Returns what is wrong with the file now; "" if nothing."""
        if not path.is_file():
            return f"{path.name} is {'not a file' if path.exists() else 'missing'}"
        size = path.stat().st_size
        if size != self.bytes:
            return f"{path.name} has {size:,} bytes, not the {self.bytes:,} that were written"
        if sha256_of(path) != self.sha256:
            return f"{path.name} has changed since it was written (SHA-256)"
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointRecord:
    """The metadata of a checkpoint.

    Attributes:
        step: The global step.
        weights: SHA-256 over the weights of the model, as `fingerprint.py` takes it.
        state: The same over all that the checkpoint holds.
        config: SHA-256 over the resolved config; "" where the run had none of ours.
        optimizer: Its kind: slots of one kind mean nothing to another.
        strategy: The strategy and its number of replicas, such as `MirroredStrategy × 2`.
        numerics: What else decides the bits of the weights: threads, instruction sets, versions.
        inexact: Why the config alone does not give these weights again, such as a resume with
            another strategy.
        non_finite: The variables that were not finite when the model was built, and may stay so:
            all others were found to be finite. None in a record of earlier versions, which did not
            check.
        callbacks: What callbacks remember, by their names.
        stopped: Why a callback ended training at this step; "" if none did.
        files: The files of the checkpoint by name.
    """

    step: int
    weights: str
    state: str
    config: str = ""
    optimizer: str = ""
    strategy: str = ""
    numerics: Mapping[str, str] = dataclasses.field(default_factory=dict)
    inexact: Sequence[str] = ()
    non_finite: Sequence[str] | None = None
    callbacks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stopped: str = ""
    files: Mapping[str, FileMark] = dataclasses.field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Writes the record as JSON, with a checksum of its own."""
        values = dataclasses.asdict(self)
        whole = {**values, _CHECKSUM: _checksum_of(values)}
        write_whole(path, json.dumps(whole, indent=1) + "\n")


def _checksum_of(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_record(path: Path) -> CheckpointRecord:
    """Reads a record.

    Args:
        path: The JSON file.

    Returns:
        The record.

    Raises:
        ValueError: The file holds no record, or one that has changed.
        OSError: It cannot be read.
    """
    try:
        values = read_json_object(path)
        checksum = values.pop(_CHECKSUM, None)  # Earlier versions wrote none.
        if checksum not in (None, _checksum_of(values)):
            raise ValueError("it has changed since it was written (SHA-256)")
        files = {name: FileMark(**mark) for name, mark in values.pop("files").items()}
        return CheckpointRecord(**values, files=files)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is not the record of a checkpoint: {error}") from error


def mark_files(paths: Iterable[Path]) -> dict[str, FileMark]:
    """Returns how files look now, by name.

    Args:
        paths: The files.
    """
    return {path.name: FileMark(path.stat().st_size, sha256_of(path)) for path in sorted(paths)}


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file's content, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
