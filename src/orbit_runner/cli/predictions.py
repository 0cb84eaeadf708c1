"""Runs a predictor batch by batch and prints the predictions as they arrive."""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from orbit_runner.data.text.lines import read_stream
from orbit_runner.errors import RunnerError
from orbit_runner.tasks.serving import Prediction, Predictor
from orbit_runner.utils.files import to_jsonable, write_output
from orbit_runner.utils.log import Progress
from orbit_runner.utils.streams import check_stdout, print_message, print_result

ERROR = "error"
_ERROR_COLUMN = "prediction_error"
_WARNING_COLUMN = "prediction_warning"


def print_predictions(
    predictor: Predictor,
    arguments: Sequence[str],
    *,
    as_json: bool,
    batch_size: int,
    to: Path | None = None,
) -> int:
    """Prints the predictions for all items, in order. Returns the number of items without one.

    With `to`, writes a CSV file instead, with the columns of the items and of the predictions.

    The items are `arguments`, and the lines of standard input if there are no arguments or one is
    `-`. If `as_json`, each prediction is a JSON object on a separate line. The batch size is 1 if
    `-` is a terminal.
    """
    if sys.stdin.isatty() and "-" in arguments:
        batch_size = 1
    progress = Progress("predicting")
    # Predictions on the same terminal already show the progress.
    is_shown = not sys.stdout.isatty()
    count = failed = warned = 0
    first_warning = ""
    answered = list[Prediction]()
    for batch in _batches(predictor.items(arguments, _read_lines()), batch_size):
        answers = predictor.predict(batch)
        if len(answers) != len(batch):
            raise RuntimeError(f"expected {len(batch)} predictions, got {len(answers)}")
        failed += sum(ERROR in answer.data for answer in answers)
        warnings = [answer.warning for answer in answers if answer.warning]
        warned += len(warnings)
        first_warning = first_warning or next(iter(warnings), "")
        if to is not None:
            if any(answer.cells is None for answer in answers):
                raise RunnerError(
                    "the items are not rows of a table\nremove it, or use --json",
                    path="--to",
                    code="bad-item",
                )
            answered += answers
        else:
            lines = (_format_prediction(answer, as_json) for answer in answers)
            print_result("\n".join(lines), is_data=as_json)
            check_stdout()
        count += len(batch)
        if is_shown:
            progress(f"{count} items")
    if not count:
        where = ", ".join(name for name in arguments if name != "-") or "standard input"
        raise RunnerError(f"{where}: there are no items to predict", path="ITEM", code="empty-data")
    if to is not None:
        write_output(to, _table_of(answered))
    if warned:
        print_message(f"{warned} of {count} items have a warning; first: {first_warning}")
    if failed:
        print_message(f"{failed} of {count} items have no prediction")
    return failed


def _table_of(answers: Sequence[Prediction]) -> str:
    """Returns a CSV file with a row for each item: its columns, and then those of its prediction.

    A row without a prediction says why in the column `prediction_error`, and one whose prediction
    may be wrong in `prediction_warning`.
    """
    own = [*dict.fromkeys(name for answer in answers for name in answer.cells or ())]
    notes = [
        {_ERROR_COLUMN: answer.data.get(ERROR), _WARNING_COLUMN: answer.warning}
        for answer in answers
    ]
    note_columns = [name for name in notes[0] if any(row[name] for row in notes)]
    added = [*dict.fromkeys(name for answer in answers for name in answer.columns), *note_columns]
    if twice := [name for name in added if name in own]:
        raise RunnerError(
            f"the rows have a column {twice[0]!r} themselves; rename it",
            path="--to",
            code="set-twice",
        )
    file = io.StringIO()
    writer = csv.DictWriter(file, [*own, *added], restval="", lineterminator="\n")
    writer.writeheader()
    for answer, row in zip(answers, notes, strict=True):
        own_notes = {name: row[name] for name in note_columns}
        writer.writerow({**(answer.cells or {}), **answer.columns, **own_notes})
    return file.getvalue()


def _batches(items: Iterable[object], size: int) -> Iterator[list[object]]:
    source = iter(items)
    while batch := list(itertools.islice(source, size)):
        yield batch


def _read_lines() -> Iterator[str]:
    """Yields the lines of standard input, split and decoded like those of a file."""
    stream = getattr(sys.stdin, "buffer", None)
    if isinstance(stream, io.BufferedReader):
        return read_stream(stream, "standard input")
    return iter(sys.stdin.readline, "")


def _format_prediction(answer: Prediction, as_json: bool) -> str:
    if not as_json:
        return f"{answer.text}  {answer.warning}" if answer.warning else answer.text
    return json.dumps(to_jsonable(answer.data), ensure_ascii=False, allow_nan=False)
