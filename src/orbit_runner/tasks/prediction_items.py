"""What predictors share: reading the lines of items, and answering the rest of a failed batch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from orbit_runner.data.text.lines import is_utf8, read_lines_or_problems
from orbit_runner.errors import first_line

STANDARD_INPUT = "standard input"
_NOT_UTF8 = "is not valid UTF-8"
_Row = TypeVar("_Row")
_Answer = TypeVar("_Answer")


@dataclasses.dataclass(frozen=True)
class Line:
    """A line with an item: its text, and what is wrong with it; "" if nothing is."""

    text: str
    problem: str = ""


def argument_line(argument: str) -> Line:
    """Returns an argument that is an item itself."""
    return _checked_line(argument, _NOT_UTF8)


def file_lines(path: Path) -> Iterator[Line]:
    """Yields the lines of a file, plain or gzipped, as training reads them.

    Raises `DataError` if the file cannot be read to its end.
    """
    return (Line(*pair) for pair in read_lines_or_problems(path))


def stream_lines(lines: Iterable[str]) -> Iterator[Line]:
    """Yields the lines of standard input without their line ends."""
    for number, text in enumerate(lines, 1):
        text = text.removesuffix("\n").removesuffix("\r")
        yield _checked_line(text, f"{STANDARD_INPUT}:{number}: {_NOT_UTF8}")


def _checked_line(text: str, problem: str) -> Line:
    if is_utf8(text):
        return Line(text)
    return Line(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), problem)


def is_file(argument: str) -> bool:
    """Returns whether an argument names a file or a pipe, whatever its length and characters."""
    return os.path.exists(argument) and not os.path.isdir(argument)


def answer_rows(
    call: Callable[[Sequence[_Row]], Iterable[_Answer | str]],
    rows: Sequence[_Row],
    failure: str = "",
) -> list[_Answer | str]:
    """Returns the answer for each row; for a row that has none, a string with the reason.

    An op that fails for one row fails for its batch. In that case, the rows are tried one by one.
    The reason of an op comes after `failure`.
    """
    import tensorflow as tf  # Not at the top, because modules without TensorFlow read lines, too.

    if not rows:
        return []
    try:
        return list(call(rows))
    except tf.errors.OpError as error:
        if len(rows) == 1:
            return [f"{failure}{_reason(error)}"]
    return [answer_rows(call, [row], failure)[0] for row in rows]


def _reason(error: Exception) -> str:
    """Returns the reason without the graph nodes that TensorFlow puts before and after it."""
    message = str(error).partition("[[")[0].strip().rpartition("\n")[2]
    return message.rpartition("}}")[2].strip() or first_line(error)
