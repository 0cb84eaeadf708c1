"""Reads the lines of text files, plain or gzipped."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from orbit_runner.data.text.scan_cache import load_or_count
from orbit_runner.errors import DataError
from orbit_runner.utils.progress_line import Progress

_GZIP = b"\x1f\x8b"
_BOM = "\ufeff"
_BLOCK_BYTES = 2**20


def read_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, plain or gzipped, without line ends.

    Only a line feed ends a line, with or without a carriage return before it. The other characters
    that Python treats as line ends occur within sentences, and would shift all pairs after them.
    Raises DataError with the field `input_path` if the file cannot be read, is truncated or is not
    UTF-8.
    """
    number = 0
    with _open_scope(path) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.rstrip(b"\n").removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                raise _error(f"{path}:{number}: is not valid UTF-8 ({error.reason})") from None
            yield text.removeprefix(_BOM) if number == 1 else text


def count_lines(paths: Sequence[Path]) -> tuple[int, str]:
    """Returns the number of lines of files and their digest, cached while the files are unchanged.

    Raises DataError like `read_lines`, and if a file is empty.
    """
    counted = [load_or_count(path, _count) for path in paths]
    for path, (count, _) in zip(paths, counted, strict=True):
        if not count:
            raise _error(f"{path}: is empty, expected one sentence per line")
    digests = "".join(digest for _, digest in counted)
    return sum(count for count, _ in counted), hashlib.sha256(digests.encode()).hexdigest()


def lines_digest(path: Path) -> str:
    """Returns a digest of the text of a file, the same whether it is gzipped or not."""
    return f"text:{load_or_count(path, _count)[1]}"


def read_text_digest(path: Path) -> str:
    """Returns the same digest as `lines_digest`, but always computes it from the file."""
    return f"text:{_count(path)[1]}"


def _count(path: Path) -> tuple[int, str]:
    count, digest, block = 0, hashlib.sha256(), b""
    decoder, progress = codecs.getincrementaldecoder("utf-8")(), Progress(f"reading {path.name}")
    try:
        with _open_scope(path) as file:
            while more := file.read(_BLOCK_BYTES):
                block = more
                digest.update(block)
                decoder.decode(block)
                count += block.count(b"\n")
                progress(f"{count:,} lines")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        # Read again, to report the line.
        for _ in read_lines(path):
            pass
        raise
    return count + bool(block and not block.endswith(b"\n")), digest.hexdigest()


@contextlib.contextmanager
def _open_scope(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            if file.peek(2)[:2] != _GZIP:
                yield file
                return
            with gzip.open(file) as unpacked:
                yield cast(BinaryIO, unpacked)
    except (OSError, EOFError, zlib.error) as error:
        raise _error(f"{path}: cannot be read to the end ({error})") from None


def _error(message: str) -> DataError:
    return DataError(message, field="input_path")
