"""`runner predict`: prints the predictions of a trained model for files, texts or users."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.cli.flags.config_flags import (
    Parser,
    add_progress_flags,
    messages_scope,
    parse,
    parser,
    progress_of,
)
from orbit_runner.cli.flags.path_flags import resolve_path_flags
from orbit_runner.cli.gin_bindings import bind_gin
from orbit_runner.cli.model_selection import Chosen, add_choice_flags, read_chosen
from orbit_runner.cli.predictions import answer_all
from orbit_runner.cli.preflight import setting_error_scope
from orbit_runner.cli.remote_runs import local_run_scope
from orbit_runner.config.resolve import Request, Resolved, resolve
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.serving.export_directory import CONFIG, EXTRA, find_export
from orbit_runner.utils.garbage_collection import paused_collection_scope

# Exit code if some items have no answer. The other answers are printed.
UNANSWERED = 5
_USAGE = "runner predict WHERE [ITEM ...|-] [FLAGS]"
_DESCRIPTION = """\
Print the predictions of the model of a run, or of an exported model, which needs neither
checkpoints nor the dataset.

  WHERE  a run directory, or a directory that `runner export` wrote
  ITEM   image files and directories of them, sentences, users, or rows as JSON or .npz files,
         depending on the task; after `--`, items may begin with a dash.
         `-`, or no item if standard input is not a terminal: read items from there, one per line

Predictions are printed on standard output in the order of the items, batch by batch. For an item
without a prediction, the reason is printed instead, and the exit code is 5."""
_MOST = 2**20  # limit of `--batch_size` and `--top_k`
_FLAGS_ALONE = ("--json", "--quiet", "--help")


def main(arguments: Sequence[str]) -> int:
    """Prints the predictions for the given items. Returns 0, or 5 if an item has no answer."""
    options, words = _split_flags(arguments)
    flags = parse(_parser(), options)
    if not words:
        raise RunnerError(f"the following arguments are required: WHERE\nusage: {_USAGE}")
    flags.where, items = words[0], words[1:]
    resolve_path_flags("predict", flags)
    if not items and sys.stdin.isatty():
        raise RunnerError("no items to predict\npass some, or - to type them, one per line")
    for name in ("top_k", "batch_size"):
        value = getattr(flags, name)
        if value is not None and not 1 <= value <= _MOST:
            raise RunnerError(f"--{name}: got {value}, allowed: 1 to {_MOST}")
    given = flags.where
    with (
        messages_scope(flags),
        local_run_scope(given, "WHERE", flags.checkpoint) as where,
        _predictor(where, flags) as predictor,
    ):
        failed = answer_all(predictor, items, as_json=flags.json, batch_size=flags.batch_size)
    return UNANSWERED if failed else 0


def _split_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separates flags from words: argparse does not accept words on both sides of a flag."""
    options, words, rest = list[str](), list[str](), list(arguments)
    while rest:
        first = rest.pop(0)
        if first == "--":
            words += rest
            break
        if first == "-" or not first.startswith("-"):
            words.append(first)
            continue
        options.append(first)
        if "=" not in first and first not in _FLAGS_ALONE and rest and first.startswith("--"):
            options.append(rest.pop(0))
    return options, words


def _parser() -> Parser:
    to = parser("predict", _DESCRIPTION)
    to.usage = _USAGE
    to.add_argument(
        "--top_k",
        type=int,
        metavar="N",
        help="number of predictions per item, for tasks that have several",
    )
    to.add_argument("--batch_size", type=int, default=32, metavar="N", help="items per batch")
    to.add_argument("--json", action="store_true", help="print one JSON object per item and line")
    add_choice_flags(to)
    add_progress_flags(to)
    return to


@contextlib.contextmanager
def _predictor(where: Path, flags: argparse.Namespace) -> Iterator[Any]:
    """Loads the model; reports errors in the flags before TensorFlow is imported."""
    exported = None if RunDirectory(where).config.is_file() else find_export(where)
    if exported is not None:
        asked = [n for n in ("checkpoint", "weights", "data_dir") if getattr(flags, n) is not None]
        if asked:
            raise RunnerError(
                f"--{asked[0]}: {exported} is an exported model, which has one set of weights and "
                f"needs no data\nto use --{asked[0]}, pass the run directory instead"
            )
        with _of_export(exported, _config(exported, flags), flags) as predictor:
            yield predictor
        return
    if not where.is_dir() or not RunDirectory(where).config.is_file():
        there = (
            "contains neither config.yaml nor a SavedModel"
            if where.is_dir()
            else "is not a directory"
        )
        raise RunnerError(
            f"WHERE: {where} {there}\npass a run directory, such as runs/digits/a, or a directory "
            "that `runner export` wrote"
        )
    with _of_run(read_chosen(where, flags), flags) as predictor:
        yield predictor


def _config(exported: Path, flags: argparse.Namespace) -> Resolved:
    path = exported / EXTRA / CONFIG
    if not path.is_file():
        raise RunnerError(
            f"WHERE: {exported} has no {EXTRA}/{CONFIG}, which describes the model\n"
            "use a directory that `runner export` wrote"
        )
    changes = tuple((f"--{path}", path, text) for path, text in flags.dotted)
    imports = tuple(flags.imports or ())
    return resolve(Request(experiment=str(path), imports=imports, flags=changes))


@contextlib.contextmanager
def _of_export(exported: Path, resolved: Resolved, flags: argparse.Namespace) -> Iterator[Any]:
    with _progress(flags, resolved) as progress, setting_error_scope(resolved):
        from orbit_runner.serving.export import load_signatures
        from orbit_runner.serving.loader import make_task, require

        task = make_task(resolved.config, None, num_gpus=-1)
        require(task, "predictor")
        progress.phase(f"loading {exported}")
        predictor = task.predictor(load_signatures(exported), top_k=flags.top_k)
    yield predictor


@contextlib.contextmanager
def _of_run(chosen: Chosen, flags: argparse.Namespace) -> Iterator[Any]:
    config = chosen.resolved.config
    with contextlib.ExitStack() as stack:
        with _progress(flags, chosen.resolved), setting_error_scope(chosen.resolved):
            from orbit_runner.serving.loader import load_scope, make_task, require

            task = make_task(config, chosen.run, num_gpus=-1)
            require(task, "predictor")
            model = stack.enter_context(load_scope(config, task, chosen.choice, chosen.weights))
            predictor = task.predictor(model.serving.signatures, top_k=flags.top_k)
        yield predictor


@contextlib.contextmanager
def _progress(flags: argparse.Namespace, resolved: Resolved) -> Iterator[Any]:
    """Shows progress while the model is loaded; imports TensorFlow."""
    from orbit_runner.distribute.tf_environment import prepare_environment

    progress = progress_of(flags, "predict", flags.where)
    with progress.shown_scope():
        progress.phase("importing tensorflow")
        prepare_environment(resolved.config.runtime)
        with paused_collection_scope():
            # Imported here, so that the time is spent in the phase that names it.
            importlib.import_module("tensorflow")

        bind_gin(resolved)
        yield progress
