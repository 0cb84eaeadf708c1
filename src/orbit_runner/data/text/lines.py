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
    """Reads a file line by line.

    Only a line feed ends a line, with or without a carriage return: the other characters that
    Python takes for ends of lines occur within sentences, and would shift all pairs behind them.

    Args:
        path: The file, UTF-8, by its first bytes gzipped or not.

    Yields:
        The lines, without their ends.

    Raises:
        DataError: It cannot be read, is cut short, or is no UTF-8; field `input_path`.
    """
    number = 0
    with _open_scope(path) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.rstrip(b"\n").removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                raise _error(f"{path}:{number}: got no UTF-8 ({error.reason})") from None
            yield text.removeprefix(_BOM) if number == 1 else text


def count_lines(paths: Sequence[Path]) -> tuple[int, str]:
    """Reads files to the end, unless they have not changed since that was done.

    Args:
        paths: The files, one behind the other.

    Returns:
        The number of lines and a digest of them.

    Raises:
        DataError: As `read_lines`, or a file is empty.
    """
    counted = [load_or_count(path, _count) for path in paths]
    for path, (count, _) in zip(paths, counted, strict=True):
        if not count:
            raise _error(f"{path}: got an empty file, expected a sentence a line")
    digests = "".join(digest for _, digest in counted)
    return sum(count for count, _ in counted), hashlib.sha256(digests.encode()).hexdigest()


def lines_digest(path: Path) -> str:
    """Returns a digest of the text of a file, the same whether it is gzipped or not.

    Args:
        path: The file.

    Raises:
        DataError: As `count_lines`.
    """
    return f"text:{load_or_count(path, _count)[1]}"


def read_text_digest(path: Path) -> str:
    """Computes the same digest from the file, whatever a cache says.

    Args:
        path: The file.

    Raises:
        DataError: As `read_lines`.
    """
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
        # Once more, to say which line it is.
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
        raise _error(f"{path}: cannot be read to its end ({error})") from None


def _error(message: str) -> DataError:
    return DataError(message, field="input_path")
