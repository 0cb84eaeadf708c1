"""Flags of Model Garden's drivers and of absl: equivalents, and explanations of the others.

`docs/official_drivers.md` has the table for users; a test compares the two.
"""

from __future__ import annotations

import argparse
import importlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from orbit_runner.errors import RunnerError
from orbit_runner.storage.paths import local_path

# Flags without a value, or with the prefix `no`, as in absl.
BOOLEANS = ("enable_async_checkpointing", "logtostderr", "alsologtostderr")
_MAX_FLAGFILE = 2**20  # characters; a device such as /dev/zero is endless
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")

_EXPORT = "`runner export RUN --to=DIR`, or --trainer.export_subdir to export at the end of a run"
_STDERR = "only the results are written to standard output; redirect standard error: 2>FILE"
_DEBUGGER = "python -m pdb -m orbit_runner …"
_PROFILER = "python -m cProfile -o FILE -m orbit_runner …"
_NO_EQUIVALENT = (
    "no equivalent, because its driver registers no experiment; `runner list --official` lists "
    "those that can be run"
)
# Flag to its replacement. Such a flag is an error, whatever its value.
REPLACED = {
    "tfhub_handle": _EXPORT,
    "tflex_output_uri": _EXPORT,
    "profile_steps": "use TensorBoard to capture a profile of a running process",
    "log_dir": _STDERR,
    "stderrthreshold": "use --verbosity to select which lines are shown",
    "showprefixforinfo": "use --verbosity to select which lines are shown; each has a prefix",
    "only_check_args": "`runner validate` checks files, `runner show` everything that flags set",
    "helpxml": "--help",
    "pdb": _DEBUGGER,
    "run_with_pdb": _DEBUGGER,
    "pdb_post_mortem": _DEBUGGER,
    "run_with_profiling": _PROFILER,
    "profile_file": _PROFILER,
    "use_cprofile_for_profiling": _PROFILER,
    # From projects/nhnet/trainer.py.
    "train_file_pattern": "--task.train_data.input_path",
    "eval_file_pattern": "--task.validation_data.input_path",
    "init_checkpoint": "--task.init_checkpoint",
    "checkpoint_interval": "--trainer.checkpoint_interval",
    "eval_steps": "--trainer.validation_steps",
    "eval_timeout": "--trainer.continuous_eval_timeout",
    "train_batch_size": "--task.train_data.global_batch_size",
    "eval_batch_size": "--task.validation_data.global_batch_size",
    "steps_per_loop": "--trainer.steps_per_loop",
    "len_title": _NO_EQUIVALENT,
    "len_passage": _NO_EQUIVALENT,
    "num_encoder_layers": _NO_EQUIVALENT,
    "num_decoder_layers": _NO_EQUIVALENT,
    "model_type": _NO_EQUIVALENT,
    "num_nhnet_articles": _NO_EQUIVALENT,
    "enable_mlir_bridge": "--runtime.enable_xla compiles with XLA; TensorFlow decides how",
    # From projects/triviaqa/train.py.
    "validation_gold_path": _NO_EQUIVALENT,
    "model_config_path": _NO_EQUIVALENT,
    "sentencepiece_model_path": _NO_EQUIVALENT,
    "encoder": _NO_EQUIVALENT,
    "bigbird_block_size": _NO_EQUIVALENT,
    "init_checkpoint_path": "--task.init_checkpoint",
    "train_sequence_length": _NO_EQUIVALENT,
    "train_global_sequence_length": _NO_EQUIVALENT,
    "validation_sequence_length": _NO_EQUIVALENT,
    "validation_global_sequence_length": _NO_EQUIVALENT,
    "batch_size": "--task.train_data.global_batch_size and "
    "--task.validation_data.global_batch_size",
    "master": "--tpu",
    "decode_top_k": _NO_EQUIVALENT,
    "decode_max_size": _NO_EQUIVALENT,
    "dropout_rate": _NO_EQUIVALENT,
    "attention_dropout_rate": _NO_EQUIVALENT,
    "label_smoothing": _NO_EQUIVALENT,
    "gin_bindings": "--gin_params",
}
REPLACED_MODES = {
    "train_and_validate": "Model Garden lists this mode but does not implement it; use "
    "--mode=train_and_eval, or --runtime.num_evaluators=1 to evaluate during training in another "
    "process",
}


def add_driver_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that absl adds to every driver and that have a meaning here."""
    group = parser.add_argument_group("logging, on standard error")
    group.add_argument(
        "--verbosity",
        "--v",
        "-v",
        type=int,
        metavar="LEVEL",
        help="log level of Model Garden; -1: warnings (the default), 0: information, 1: everything",
    )
    group.add_argument(
        "--logger_levels",
        metavar="NAME:LEVEL,…",
        help="log levels of individual loggers, such as tensorflow:info",
    )
    for flag in ("--logtostderr", "--alsologtostderr"):  # No effect: this is the default.
        group.add_argument(flag, nargs="?", const="true", help=argparse.SUPPRESS)
    group.add_argument("--helpfull", "--helpshort", action="help", help=argparse.SUPPRESS)


def normalize_driver_flags(arguments: Sequence[str], known: Iterable[str]) -> list[str]:
    """Returns the arguments for argparse: rewrites `-name`, `--noname`, `--flagfile`, `--undefok`.

    `known` are the names of all flags, without dashes. Raises `RunnerError` if a file of flags
    cannot be read or a Boolean flag has an invalid value.
    """
    names = {*known}
    written = [_normalize_spelling(a, names) for a in _expand_flagfiles(arguments)]
    tolerated = {
        name.strip()
        for argument in written
        if argument.startswith("--undefok=")
        for name in argument.partition("=")[2].split(",")
    }
    normalized_arguments: list[str] = []
    for index, argument in enumerate(written):
        name, equals, value = argument.removeprefix("--").partition("=")
        if name == "undefok" or (name in tolerated and name not in names):
            continue
        following = written[index + 1] if index + 1 < len(written) else ""
        normalized_arguments.append(_normalize_boolean(argument, name, equals, value, following))
    return normalized_arguments


def _expand_flagfiles(arguments: Sequence[str], seen: tuple[str, ...] = ()) -> list[str]:
    expanded_arguments: list[str] = []
    for argument in arguments:
        name, equals, path = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or name != "flagfile":
            expanded_arguments.append(argument)
            continue
        if not equals or path in seen:
            raise RunnerError(
                f"{argument}: expected --flagfile=FILE, each file once", code="wrong-usage"
            )
        expanded_arguments += _expand_flagfiles(_read_flagfile(path), (*seen, path))
    return expanded_arguments


def _read_flagfile(path: str) -> list[str]:
    try:
        with local_path(path, "--flagfile").expanduser().open(encoding="utf-8-sig") as file:
            text = file.read(_MAX_FLAGFILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise RunnerError(
            f"--flagfile={path}: cannot be read: {error}", code="unreadable-file"
        ) from None
    if len(text) > _MAX_FLAGFILE or "\0" in text:
        raise RunnerError(
            f"--flagfile={path}: is not a text file with one flag per line", code="bad-syntax"
        )
    # Not `splitlines`, for which other characters, which a value may contain, end a line.
    stripped = (line.strip() for line in text.split("\n"))
    return [line for line in stripped if line and not line.startswith(("#", "//"))]


def _normalize_spelling(argument: str, names: set[str]) -> str:
    """Returns `-some-name` and `--some-name` as `--some_name`."""
    dashes = len(argument) - len(argument.lstrip("-"))
    name, equals, value = argument[dashes:].partition("=")
    name = name.replace("-", "_")
    if dashes == 2 or (dashes == 1 and len(name) > 1 and _strip_no(name) in {*names, *BOOLEANS}):
        return f"--{name}{equals}{value}"
    return argument


def _strip_no(name: str) -> str:
    bare = name.removeprefix("no")
    return bare if bare in BOOLEANS else name


def _normalize_boolean(argument: str, name: str, equals: str, value: str, following: str) -> str:
    if not argument.startswith("--") or _strip_no(name) not in BOOLEANS:
        return argument
    if name != _strip_no(name):
        if equals:
            raise RunnerError(f"{argument}: --{name} does not accept a value", code="wrong-usage")
        return f"--{_strip_no(name)}=false"
    if not equals:
        return argument if following.lower() in (*_TRUE, *_FALSE) else f"{argument}=true"
    if value.lower() not in (*_TRUE, *_FALSE):
        raise RunnerError(
            f"got {value!r}, allowed: true, false", path=f"--{name}", code="not-allowed"
        )
    return f"--{name}={'true' if value.lower() in _TRUE else 'false'}"


def check_mode(mode: str | None) -> None:
    """Raises an error for a mode that Model Garden's drivers name but do not implement."""
    if mode in REPLACED_MODES:
        raise RunnerError(f"--mode={mode}: {REPLACED_MODES[mode]}", code="not-allowed")


def set_log_levels(flags: argparse.Namespace) -> None:
    """Sets the log levels that `--verbosity` and `--logger_levels` specify."""
    verbosity = getattr(flags, "verbosity", None)
    levels = getattr(flags, "logger_levels", None)
    if verbosity is None and not levels:
        return
    absl_logging: Any = importlib.import_module("absl.logging")
    absl_logging.use_absl_handler()
    if verbosity is not None:
        absl_logging.set_verbosity(verbosity)
    for part in (levels or "").split(","):
        name, _, level = part.strip().rpartition(":")
        if part.strip() and not isinstance(logging.getLevelName(level.upper()), int):
            raise RunnerError(
                f"got {part.strip()!r}, expected name:info, …",
                path="--logger_levels",
                code="wrong-type",
            )
        if part.strip():
            logging.getLogger(name).setLevel(level.upper())
