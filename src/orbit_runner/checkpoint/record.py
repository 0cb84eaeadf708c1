"""The record next to each checkpoint: fingerprints, and the conditions it was made under."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.utils.files import read_json_object, sha256_of, write_atomically

_CHECKSUM = "checksum"


@dataclasses.dataclass(frozen=True)
class CheckpointProblem:
    """Why a checkpoint cannot be used; its text is the end of a sentence about the checkpoint."""

    reason: str
    is_gone: bool = False  # Whether the checkpoint was removed.

    def __str__(self) -> str:
        return f"is damaged: {self.reason}"


@dataclasses.dataclass(frozen=True)
class FileMark:
    """The size and the hash of a file when it was written."""

    bytes: int
    sha256: str  # Hash of the content.

    def damage(self, path: Path) -> str:
        """Returns what is wrong with the file now, or "" if nothing is."""
        if not path.is_file():
            return f"{path.name} is {'not a file' if path.exists() else 'missing'}"
        size = path.stat().st_size
        if size != self.bytes:
            return f"{path.name} has {size:,} bytes instead of {self.bytes:,}"
        if sha256_of(path) != self.sha256:
            return f"{path.name} has changed since it was written (SHA-256)"
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointRecord:
    """The metadata of a checkpoint."""

    step: int
    weights: str  # Fingerprint of the model's weights; see `fingerprint.py`.
    state: str  # Fingerprint of everything in the checkpoint.
    config: str = ""  # SHA-256 of the resolved config.
    optimizer: str = ""  # Its kind. Slots of one kind are meaningless to another.
    strategy: str = ""  # With the number of replicas: `MirroredStrategy × 2`.
    # What else determines the bits of the weights: threads, instruction sets, versions.
    numerics: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The SHA-256 of the source of the user's modules, by name.
    code: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Digest of what the run learned from its training data, such as classes; "" if nothing.
    assets: str = ""
    # Why the config alone does not reproduce these weights, such as a resume with another strategy.
    inexact: Sequence[str] = ()
    # Variables that were not finite when the model was built and may stay so. All others were found
    # to be finite.
    non_finite: Sequence[str] = ()
    # The state of the callbacks by name.
    callbacks: Mapping[str, object] = dataclasses.field(default_factory=dict)
    stopped: str = ""  # Why a callback ended training at this step, or "".
    # The metrics of the evaluation, if it is a best checkpoint.
    result: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    files: Mapping[str, FileMark] = dataclasses.field(default_factory=dict)  # By file name.

    def write(self, path: Path) -> None:
        """Writes the record as JSON, with a checksum."""
        values = dataclasses.asdict(self)
        content = {**values, _CHECKSUM: _checksum_of(values)}
        write_atomically(path, json.dumps(content, indent=1) + "\n")


def _checksum_of(values: Mapping[str, object]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_record(path: Path) -> CheckpointRecord:
    """Returns the record in a JSON file.

    Raises `ValueError` if the file holds no record or has changed, and `OSError` if it cannot be
    read.
    """
    try:
        values = read_json_object(path)
        if values.pop(_CHECKSUM) != _checksum_of(values):
            raise ValueError("it has changed since it was written (SHA-256)")
        files = {name: FileMark(**mark) for name, mark in values.pop("files").items()}
        return CheckpointRecord(**values, files=files)
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not a checkpoint record: {error}") from error


def mark_files(paths: Iterable[Path]) -> dict[str, FileMark]:
    """Returns the current sizes and hashes of files, by file name."""
    return {path.name: FileMark(path.stat().st_size, sha256_of(path)) for path in sorted(paths)}
