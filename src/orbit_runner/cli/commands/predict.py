"""`runner predict`: prints the predictions of a trained model for files, texts or users."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, Parser, parse_flags
from orbit_runner.cli.flags.config_flags import PROGRESS_FLAGS, tensorflow_scope
from orbit_runner.cli.flags.rows import flag, switch
from orbit_runner.cli.flags.values import OUTPUT_FILE, RUN, Count
from orbit_runner.cli.model_selection import (
    MODEL_FLAGS,
    MODEL_SETTINGS,
    MODEL_SETTINGS_RULE,
    select_model,
)
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.data.text.lines import read_stream
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.serving.export_directory import CONFIG, RECORD, find_export
from orbit_runner.serving.formats import saved_model
from orbit_runner.utils.files import to_jsonable, write_output
from orbit_runner.utils.log import Progress, phase
from orbit_runner.utils.streams import check_stdout, print_message, print_result

if TYPE_CHECKING:
    from orbit_runner.tasks.serving import Prediction, Predictor

_USAGE = "runner predict WHERE [ITEM ...|-] [FLAGS]"
_DESCRIPTION = """\
Print the predictions of the model of a run, or of an exported SavedModel, which needs
neither checkpoints nor the dataset.

  WHERE  a run directory, or a SavedModel that `runner export` wrote
  ITEM   image files and directories of them, sentences, users, files of tables, or
         rows as JSON or .npz files, depending on the task; after `--`, items may
         begin with a dash. `-`, or no item if standard input is not a terminal:
         read items from there, one per line

Predictions are printed on standard output in the order of the items, batch by batch. For an item
without a prediction, the reason is printed instead, and the exit code is 5."""
_COUNT = Count(1, 2**20)
_ERROR = "error"
_ERROR_COLUMN = "prediction_error"
_WARNING_COLUMN = "prediction_warning"


def main(flags: argparse.Namespace) -> int:
    """Prints the predictions for the given items. Returns 0, or 5 if an item has none."""
    if not flags.items and sys.stdin.isatty():
        raise RunnerError(
            "no items to predict\npass some, or - to type them, one per line", code="not-set"
        )
    if flags.to is not None:
        _check_output(flags)
    with _predictor_scope(Path(flags.where), flags) as predictor:
        failed = print_predictions(
            predictor,
            flags.items,
            as_json=flags.json,
            batch_size=flags.batch_size,
            to=None if flags.to is None else Path(flags.to),
        )
    return exit_codes.UNANSWERED if failed else 0


def _check_output(flags: argparse.Namespace) -> None:
    """Raises `RunnerError` if `--to` is not a new CSV file, or has no effect."""
    if flags.json:
        raise RunnerError(
            "writes a CSV file, so --json has no effect\nremove one of them",
            path="--to",
            code="no-effect",
        )
    if Path(flags.to).suffix != ".csv":
        raise RunnerError(
            f"got {flags.to!r}, expected a file that ends in .csv",
            path="--to",
            code="wrong-file-type",
        )
    if any(
        item != "-" and Path(item).resolve() == Path(flags.to).resolve() for item in flags.items
    ):
        raise RunnerError(
            f"{flags.to} is one of the items; write another file",
            path="--to",
            code="already-exists",
        )


def _parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    flags = parse_flags(parser, arguments)
    if not flags.where:
        raise RunnerError(
            f"the following arguments are required: WHERE\nusage: {_USAGE}", code="wrong-usage"
        )
    return flags


@contextlib.contextmanager
def _predictor_scope(where: Path, flags: argparse.Namespace) -> Iterator[Predictor]:
    """Loads the model; reports errors in the flags before TensorFlow is imported."""
    selected = None
    if RunDirectory(where).config.is_file() and not (where / RECORD).is_file():
        selected = select_model(where, flags)
        resolved = selected.resolved
    else:
        where = _find_export(where, flags)
        resolved = _resolve_export_config(where, flags)
    module = "orbit_runner.serving.loader"
    with contextlib.ExitStack() as stack:
        with tensorflow_scope(flags, resolved, module, "predict", flags.where):
            from orbit_runner.serving.loader import load_scope, make_task, require_method

            task = make_task(resolved.config, where if selected else None, num_gpus=-1)
            require_method(task, "predictor")

            @contextlib.contextmanager
            def load_predictor_scope(device: str | None) -> Iterator[Predictor]:
                if selected is None:  # On the current device.
                    phase(f"loading {where}")
                    yield task.predictor(saved_model.load_signatures(where), top_k=flags.top_k)
                    return
                choice, weights = selected.choice, selected.weights
                with load_scope(resolved.config, task, choice, weights, device) as loaded:
                    yield task.predictor(loaded.serving.signatures, top_k=flags.top_k)

            predictor = stack.enter_context(_checked_indexes_scope(load_predictor_scope))
        yield predictor


def _find_export(where: Path, flags: argparse.Namespace) -> Path:
    """Returns the export; raises `RunnerError` if there is none, or for flags of a run."""
    exported = find_export(where)
    if exported is None:
        problem = (
            "contains neither a run nor a SavedModel" if where.is_dir() else "is not a directory"
        )
        raise RunnerError(
            f"{where} {problem}\npass a run directory, such as runs/digits/a, or a "
            "SavedModel that `runner export` wrote",
            path="WHERE",
            code="not-a-run",
        )
    given_flags = [n for n in ("checkpoint", "weights") if getattr(flags, n) is not None]
    given_flags += ["data_dir" for flag, _, _ in flags.overrides if flag == "--data_dir"]
    if given_flags:
        raise RunnerError(
            f"{exported} is an exported model, which has one set of weights and needs no data\n"
            f"to use --{given_flags[0]}, pass the run directory instead",
            path=f"--{given_flags[0]}",
            code="no-effect",
        )
    return exported


def _resolve_export_config(exported: Path, flags: argparse.Namespace) -> ResolvedConfig:
    path = exported / saved_model.EXTRA / CONFIG
    if not path.is_file():
        raise RunnerError(
            f"{exported} has no {path.relative_to(exported)}, which describes the model\n"
            "use a directory that `runner export` wrote",
            path="WHERE",
            code="not-a-run",
        )
    imports = tuple(flags.imports or ())
    return resolve(Request(experiment=str(path), imports=imports, flags=tuple(flags.overrides)))


@contextlib.contextmanager
def _checked_indexes_scope(
    load_scope: Callable[[str | None], AbstractContextManager[Predictor]],
) -> Iterator[Predictor]:
    """Loads a predictor. If only the CPU checks the indexes in its model, it runs there.

    On a GPU, an id that an embedding does not have selects zeros, without an error.
    """
    import tensorflow as tf

    with contextlib.ExitStack() as stack:
        predictor = stack.enter_context(load_scope(None))
        if getattr(predictor, "needs_cpu", False) and tf.config.list_logical_devices("GPU"):
            stack.close()
            stack.enter_context(tf.device("CPU:0"))
            predictor = stack.enter_context(load_scope("CPU:0"))
        yield predictor


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
    answered: list[Prediction] = []
    for batch in _batches(predictor.items(arguments, _read_lines()), batch_size):
        answers = predictor.predict(batch)
        if len(answers) != len(batch):
            raise RuntimeError(f"expected {len(batch)} predictions, got {len(answers)}")
        failed += sum(_ERROR in answer.data for answer in answers)
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
        {_ERROR_COLUMN: answer.data.get(_ERROR), _WARNING_COLUMN: answer.warning}
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


_FLAGS = (
    flag("where=WHERE", argparse.SUPPRESS, nargs="?", type=RUN),
    flag("items", argparse.SUPPRESS, nargs="*"),
    flag("--top_k=N", "number of predictions per item, for tasks that have several", type=_COUNT),
    flag("--batch_size=N", "items per batch", type=_COUNT, default=32),
    switch("--json", "print one JSON object per item and line"),
    flag(
        "--to",
        "CSV file to write instead: the rows of tables, with all of their columns, and the "
        "predictions as further columns",
        type=OUTPUT_FILE,
    ),
    *MODEL_FLAGS,
    *PROGRESS_FLAGS,
)
COMMAND = Command(
    "predict",
    _DESCRIPTION,
    _FLAGS,
    ["runs/a digit.png --top_k=3", "runs/a rows.csv --to=scored.csv"],
    main,
    _parse,
    settings=MODEL_SETTINGS,
    settings_rule=MODEL_SETTINGS_RULE,
    usage=_USAGE,
    mixes=True,
)
