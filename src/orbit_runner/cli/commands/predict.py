"""`runner predict`: prints the predictions of a trained model for files, texts or users."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
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
from orbit_runner.cli.predictions import print_predictions
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.serving.export_directory import CONFIG, RECORD, find_export
from orbit_runner.serving.formats import saved_model
from orbit_runner.utils.log import phase

if TYPE_CHECKING:
    from orbit_runner.tasks.serving import Predictor

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
