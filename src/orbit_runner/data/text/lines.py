"""Reads the lines of text files, plain or gzipped."""

from __future__ import annotations

import codecs
import contextlib
import functools
import gzip
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from orbit_runner.data.disk_cache import FileStatus, Values, cached, file_status
from orbit_runner.errors import DataError
from orbit_runner.utils.log import Progress

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
    for text, problem in read_lines_or_problems(path):
        if problem:
            raise _error(problem)
        yield text


def read_lines_or_problems(path: Path) -> Iterator[tuple[str, str]]:
    """Yields each line of a file like `read_lines`, and its problem if it is not UTF-8, or "".

    The text of a line that is not UTF-8 is empty.
    """
    with _open_scope(path) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.rstrip(b"\n").removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                yield "", f"{path}:{number}: is not valid UTF-8 ({error.reason})"
                continue
            yield text.removeprefix(_BOM) if number == 1 else text, ""


def remove_mark(lines: Iterable[str]) -> Iterator[str]:
    """Yields lines without the byte order mark before the first, which some programs write."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix(_BOM)


def read_stream(file: BufferedReader, name: str) -> Iterator[str]:
    """Yields the lines of a stream, plain or gzipped, with their line ends.

    Only a line feed ends a line. Bytes that are not UTF-8 become lone surrogates, as Python does
    with arguments. `name` is that of the stream in errors. Raises DataError like `read_lines`.
    """
    try:
        with _unpacked_scope(file) as unpacked:
            # Not `for line in unpacked`, which would read ahead of what is typed.
            lines = iter(unpacked.readline, b"")
            yield from remove_mark(line.decode("utf-8", "surrogateescape") for line in lines)
    except (OSError, EOFError, zlib.error) as error:
        raise _error(f"{name}: cannot be read to the end ({error})") from None


def is_utf8(text: str) -> bool:
    """Returns whether a text has no lone surrogates, which TensorFlow does not accept.

    Python represents bytes by them that are not UTF-8, and JSON can escape them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_files(paths: Sequence[Path]) -> Iterator[str]:
    """Yields the lines of files like `read_lines`."""
    return itertools.chain.from_iterable(map(read_lines, paths))


def count_lines(paths: Sequence[Path]) -> tuple[int, str]:
    """Returns the number of lines of files and their digest, cached while the files are unchanged.

    Raises DataError like `read_lines`, and if a file is empty.
    """
    scans = [_scan(path) for path in paths]
    for path, (count, _) in zip(paths, scans, strict=True):
        if not count:
            raise _error(f"{path}: is empty, expected one sentence per line")
    digests = "".join(digest for _, digest in scans)
    return sum(count for count, _ in scans), hashlib.sha256(digests.encode()).hexdigest()


def lines_digest(path: Path) -> str:
    """Returns a digest of the text of a file, the same whether it is gzipped or not."""
    return f"text:{_scan(path)[1]}"


def _scan(path: Path) -> tuple[int, str]:
    return _scan_file(file_status(path, "input_path"))


@functools.lru_cache(maxsize=256)
def _scan_file(file: FileStatus) -> tuple[int, str]:
    values = cached("text", "lines", lambda: _read_whole(Path(file.path)), [file])
    return values["lines"], values["digest"]


def _read_whole(path: Path) -> Values:
    try:
        count, digest = _count_blocks(path, codecs.getincrementaldecoder("utf-8")().decode)
    except UnicodeDecodeError:  # Read again, to report the line.
        for _ in read_lines(path):
            pass
        raise
    return {"lines": count, "digest": digest}


def _count_blocks(path: Path, decode: Callable[[bytes, bool], str]) -> tuple[int, str]:
    count = 0
    digest = hashlib.sha256()
    block = b""
    progress = Progress(f"reading {path.name}")
    with _open_scope(path) as file:
        while more := file.read(_BLOCK_BYTES):
            block = more
            digest.update(block)
            decode(block, False)
            count += block.count(b"\n")
            progress(f"{count:,} lines")
    decode(b"", True)
    return count + bool(block and not block.endswith(b"\n")), digest.hexdigest()


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Opens a file, plain or gzip, for reading. Its first two bytes decide, not its name."""
    with path.open("rb") as file, _unpacked_scope(file) as unpacked:
        yield unpacked


@contextlib.contextmanager
def _unpacked_scope(file: BufferedReader) -> Iterator[BinaryIO]:
    if file.peek(2)[:2] != _GZIP:
        yield file
        return
    with gzip.open(file) as unpacked:
        yield cast(BinaryIO, unpacked)


@contextlib.contextmanager
def _open_scope(path: Path) -> Iterator[BinaryIO]:
    try:
        with open_binary(path) as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise _error(f"{path}: cannot be read to the end ({error})") from None


def _error(message: str) -> DataError:
    return DataError(message, field="input_path", code="bad-record")
