"""Runs a predictor batch by batch and prints the answers as they arrive."""

from __future__ import annotations

import io
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from orbit_runner.tasks.serving import Prediction, Predictor
from orbit_runner.utils.files import jsonable
from orbit_runner.utils.log import detail
from orbit_runner.utils.streams import check_stdout, use_utf8

ERROR = "error"
_FIRST_SECONDS, _LINE_SECONDS = 2.0, 10.0


def answer_all(
    predictor: Predictor, arguments: Sequence[str], *, as_json: bool, batch_size: int
) -> int:
    """Prints the answers to all items, in order. Returns the number of items without an answer.

    The items are `arguments`, and the lines of standard input if there are no arguments or one is
    `-`. If `as_json`, each answer is a JSON object on a separate line. The batch size is 1 if `-`
    is a terminal.
    """
    if sys.stdin.isatty() and "-" in arguments:
        batch_size = 1
    if as_json:
        use_utf8()
    pace, failed = _Pace(), 0
    for batch in _batches(predictor.items(arguments, _lines()), batch_size):
        answers = predictor.predict(batch)
        if len(answers) != len(batch):
            raise RuntimeError(f"expected {len(batch)} predictions, got {len(answers)}")
        for answer in answers:
            failed += ERROR in answer.data
            print(_text(answer, as_json))
        check_stdout()
        pace.answered(len(batch))
    pace.end()
    if failed:
        print(f"{failed} of {pace.count} items have no prediction", file=sys.stderr)
    return failed


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    source = iter(items)
    while batch := list(itertools.islice(source, size)):
        yield batch


def _lines() -> Iterator[str]:
    if isinstance(sys.stdin, io.TextIOWrapper):
        # A line that is not valid UTF-8 must not end the answers to all others.
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    # Not `for line in sys.stdin`, which would read ahead of what is typed.
    yield from iter(sys.stdin.readline, "")


def _text(answer: Prediction, as_json: bool) -> str:
    if not as_json:
        return answer.text
    return json.dumps(jsonable(answer.data), ensure_ascii=False, allow_nan=False)


class _Pace:
    """Logs progress if answering takes long."""

    def __init__(self) -> None:
        self.count = 0
        self._start = time.monotonic()
        self._said = self._start + _FIRST_SECONDS - _LINE_SECONDS
        # Answers on the same terminal already show the progress.
        self._shown = not sys.stdout.isatty()

    def answered(self, count: int) -> None:
        """Counts items, and logs the count from time to time."""
        self.count += count
        now = time.monotonic()
        if self._shown and now - self._said > _LINE_SECONDS:
            self._said = now
            self._line(now - self._start)

    def end(self) -> None:
        """Logs the final count, unless answering took little time."""
        seconds = time.monotonic() - self._start
        if self._shown and seconds > _FIRST_SECONDS:
            self._line(seconds)

    def _line(self, seconds: float) -> None:
        rate = self.count / seconds
        detail(f"{self.count} items predicted, {rate:.4g} per second")
