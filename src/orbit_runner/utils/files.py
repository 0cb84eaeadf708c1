"""Reads files, writes them atomically, repairs JSON lines and converts values to JSON."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

# The shell may have redirected it to a regular file, which has other contents, too.
_OPEN_FILE = re.compile(r"/dev/(?:stdout|fd/(\d+))")
_LINES_AT_A_TIME = 1000

# The directories of runs in progress, which `create_directory` does not create again.
directories_in_use: set[Path] = set()


def create_directory(path: Path) -> None:
    """Creates a directory, and those above it.

    The directory of a run in progress is not created again if it was removed or renamed: its
    checkpoints would be missing in it.

    Raises:
        FileNotFoundError: The run directory that contains `path` was removed.
    """
    absolute = Path(os.path.abspath(path))
    above = [run for run in directories_in_use if absolute.is_relative_to(run)]
    if not above:
        path.mkdir(parents=True, exist_ok=True)
        return
    place = max(above, key=lambda run: len(run.parts))
    if not place.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(place))
    for name in absolute.relative_to(place).parts:
        # Without `parents`, so that the run directory may disappear at any time.
        place /= name
        place.mkdir(exist_ok=True)


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal."""
    import hashlib  # Not at the top, because all commands import this module.

    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def read_file(path: Path) -> bytes:
    """Returns the content of a file. Raises OSError if it cannot be read."""
    return path.read_bytes()


def temporary_path(path: Path) -> Path:
    """Returns where to write a file or directory that is then renamed to `path`.

    The name is that of this thread alone, also where several machines share the directory. So
    whoever writes there deletes nothing but its own files.
    """
    owner = f"{os.uname().nodename}-{os.getpid()}-{threading.get_native_id()}"
    return path.with_name(f".tmp-{owner}-{path.name}")


def write_atomically(path: Path, content: str | bytes | memoryview) -> None:
    """Writes a file atomically, and creates its directory as `create_directory` does."""
    if isinstance(content, str):
        # A file name on the command line may not be UTF-8. The files of a run always are.
        content = content.encode("utf-8", "backslashreplace")
    create_directory(path.parent)
    temporary = temporary_path(path)
    try:
        temporary.write_bytes(content)
        if path.is_dir():
            set_aside(path)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_output(path: Path, content: str | bytes) -> None:
    """Writes a file that the user named. Raises OSError if it cannot be written.

    A regular file is written atomically, and its directory is created. Links are followed. Devices,
    pipes and open files such as `/dev/stdout` are written to, not replaced.
    """
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    if match := _OPEN_FILE.fullmatch(os.fspath(path)):
        sys.stdout.flush()
        with open(int(match[1] or 1), "wb", closefd=False) as opened:
            opened.write(content)
        return
    if path.is_file() or not path.exists():
        write_atomically(Path(os.path.realpath(path)), content)
        return
    with path.open("wb") as file:
        file.write(content)


def write_if_changed(path: Path, text: str) -> None:
    """Writes a file atomically unless it has the same content."""
    content = text.encode("utf-8", "backslashreplace")
    with contextlib.suppress(OSError):
        if read_file(path) == content:
            return
    write_atomically(path, content)


def set_aside(path: Path, reason: str = "damaged") -> Path:
    """Renames an unusable file, such as `run.json` to `run.json.damaged`. Returns the new path."""
    return path.rename(unused_path(path.with_name(f"{path.name}.{reason}")))


def unused_path(path: Path) -> Path:
    """Returns a path that does not exist: `path`, or the path with a number after its name."""
    number = 1
    unused = path
    while os.path.lexists(unused):
        number += 1
        unused = path.with_name(f"{path.name}-{number}")
    return unused


def timestamp() -> str:
    """Returns the current time as the files of a run have it: `2026-11-20T10:00:00+0000`."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def parse_json(text: str | bytes) -> Any:
    """Returns the value of a JSON text. Raises ValueError if it is invalid or too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("values are nested too deeply") from None


def read_json_object(path: Path) -> JsonObject:
    """Returns the JSON object in a file. Raises ValueError if the file has no JSON object."""
    value = parse_json(read_file(path).decode())
    if not isinstance(value, dict):
        raise ValueError(f"got {type(value).__name__}, expected a JSON object")
    return value


def parse_record(line: bytes) -> JsonObject | None:
    """Returns the record in a line of a file of JSON lines, None if there is none.

    A record is an object with a `step`. A process may have been killed while it wrote the line.
    """
    try:
        return _as_record(parse_json(line.decode()))
    except ValueError:
        return None


def _as_record(value: Any) -> JsonObject | None:
    step = value.get("step") if isinstance(value, dict) else None
    return value if type(step) is int and abs(step) < 2**63 else None


def parse_records(lines: Iterable[bytes]) -> Iterator[tuple[bytes, JsonObject | None]]:
    """Yields lines of a file of JSON lines, each with its record as `parse_record`.

    Lines are parsed a thousand at a time, which takes a third of the time.
    """
    remaining = iter(lines)
    while block := [*itertools.islice(remaining, _LINES_AT_A_TIME)]:
        values: list[Any] = []
        with contextlib.suppress(ValueError):
            values = parse_json((b"[%b]" % b",".join(block)).decode())
        if len(values) == len(block):
            yield from zip(block, map(_as_record, values), strict=True)
        else:  # One of them is no JSON value.
            yield from ((line, parse_record(line)) for line in block)


def read_lines(path: Path, containing: bytes = b"") -> Iterator[JsonObject]:
    """Yields the records in a file of JSON lines; none if it cannot be read.

    With `containing`, only lines that contain these bytes are parsed.
    """
    try:
        with path.open("rb") as file:
            lines = (line for line in file if containing in line)
            yield from (record for _, record in parse_records(lines) if record is not None)
    except OSError:
        return


def cut_records(path: Path, *, after: int, keeps_events: bool = True) -> None:
    """Removes the records after the step `after` from a file of JSON lines.

    With `keeps_events`, events stay: they have happened, and will not happen again. Lines that are
    no records are removed; a killed process may have left one. What cannot be read is renamed.
    """
    try:
        lines = read_file(path).splitlines()
    except FileNotFoundError:
        return
    except OSError:
        set_aside(path)
        return
    remaining_lines = [
        line
        for line, record in parse_records(lines)
        if record is not None and (record["step"] <= after or (keeps_events and "event" in record))
    ]
    if remaining_lines != lines:
        write_atomically(path, b"".join(line + b"\n" for line in remaining_lines))


def to_jsonable(value: object) -> Any:
    """Returns nested values in a form that JSON supports. NaN and infinities become None."""
    if isinstance(value, Mapping):
        return {name: to_jsonable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_jsonable(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    # Not at the top, because commands that only read small files would start later.
    import numpy as np

    if isinstance(value, np.floating):
        # The shortest text that reads back as the same float32, not its float64 expansion.
        return float(str(value)) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
