"""The flags that select and change an experiment, shared by the commands."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.cli.flags.driver_flags import (
    REPLACED,
    add_driver_flags,
    check_mode,
    normalize_driver_flags,
    set_log_levels,
)
from orbit_runner.cli.flags.path_flags import resolve_path_flags
from orbit_runner.config.errors import note_text
from orbit_runner.config.parsing.search_path import is_stream
from orbit_runner.config.resolve import Request, ResolvedConfig
from orbit_runner.config.schema.base import INT_MAX
from orbit_runner.errors import RunnerError, nearest_name_hint, shorten
from orbit_runner.tf_internals import declared_arguments
from orbit_runner.utils.log import PlainMessages, log_scope

SETTINGS_OF_FLAG: dict[str, tuple[str, ...]] = {
    "distribution_strategy": ("runtime.distribution_strategy",),
    "num_gpus": ("runtime.num_gpus",),
    "tpu": ("runtime.tpu",),
    "tpu_platform": ("runtime.tpu_platform",),
    "seed": ("runtime.seed",),
    "train_steps": ("trainer.train_steps",),
    "train_epochs": ("trainer.train_epochs",),
    "data_dir": ("task.train_data.data_dir", "task.validation_data.data_dir"),
    "tf_data_service": ("runtime.tf_data_service",),
}
# Scripts for Model Garden's drivers pass these empty if they are unset.
_MAY_BE_EMPTY = ("tpu", "tpu_platform", "tf_data_service")
_SECTIONS = ("task", "trainer", "runtime")
_EXPERIMENT = "a name that `runner list` shows, a config file, or a run directory"
_SETTING_FLAG = re.compile(rf"--((?:{'|'.join(_SECTIONS)})\.[\w.\[\]]+)(?:=(.*))?$", re.DOTALL)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Adds the default of each flag to its help text."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if not action.option_strings or default in (None, False, "", argparse.SUPPRESS):
            return text
        return f"{text} (default: {default})".lstrip()


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line and checks which settings it accepts."""

    # Dotted paths that `--SECTION.NAME=VALUE` may set, with all below them.
    settings: tuple[str, ...] = ()
    settings_rule: str = ""  # why other settings are rejected, for messages

    def error(self, message: str) -> Any:
        """Raises a `RunnerError` instead of printing the error and exiting."""
        for kind, expected in (("int", "an integer"), ("float", "a number")):
            message = re.sub(
                rf"invalid {kind} value: (.*)", rf"got \1, expected {expected}", message, flags=re.S
            )
        raise RunnerError(f"{message}\nsee `{self.prog} --help`")


def make_parser(command: str, description: str) -> Parser:
    """Returns a parser without flags for a command."""
    return Parser(
        prog=f"runner {command}".rstrip(),
        description=description,
        allow_abbrev=False,
        formatter_class=_HelpFormatter,
    )


def add_config_flags(parser: Parser, *, experiment: str = _EXPERIMENT) -> None:
    """Adds the flags that make up a config; each one overrides those added before it.

    `experiment` is the help text of `--experiment`.
    """
    parser.settings = _SECTIONS
    group = parser.add_argument_group(
        "config, in increasing order of precedence",
        "--SECTION.NAME=VALUE sets any setting, such as --trainer.train_steps=1000",
    )
    add = group.add_argument
    add("--experiment", metavar="NAME", help=experiment)
    add(
        "--config_file",
        action="append",
        metavar="FILE",
        help="YAML or JSON file that overrides the experiment; may be repeated",
    )
    add(
        "--gin_file",
        action="append",
        metavar="FILE",
        help="gin file that overrides the config files; may be repeated",
    )
    add(
        "--params_override",
        action="append",
        metavar="TEXT",
        help="a.b=1,c.d=2, YAML or JSON text, or a file; may be repeated",
    )
    add(
        "--gin_param",
        "--gin_params",
        dest="gin_param",
        action="append",
        metavar="BINDING",
        help="gin binding, such as trainer.train_steps=1000; may be repeated",
    )
    for flag, paths in SETTINGS_OF_FLAG.items():
        add(f"--{flag}", metavar="VALUE", help=f"set {' and '.join(paths)}")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="reject Model Garden settings that have no effect; by default, only print a note",
    )
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        metavar="MODULE",
        help="import a module that registers custom tasks; may be repeated",
    )
    add_driver_flags(parser)


def add_progress_flags(parser: Parser) -> None:
    """Adds `--progress`, `--progress_interval` and `--quiet`."""
    parser.add_argument(
        "--progress",
        choices=("auto", "bar", "plain", "json", "none"),
        default="auto",
        help="progress on standard error: a live display with a bar, plain lines, one JSON object "
        "per line and event, or warnings and errors only; auto: bar on a terminal, otherwise plain",
    )
    parser.add_argument(
        "--progress_interval",
        type=_parse_seconds,
        default=10.0,
        metavar="SECONDS",
        help="time between two lines of training progress with plain or json",
    )
    parser.add_argument(
        "--quiet",
        action="store_const",
        const="none",
        dest="progress",
        default=argparse.SUPPRESS,
        help="same as --progress=none; the results are still printed",
    )


def progress_of(
    flags: argparse.Namespace, title: str = "", place: str = "", *, brief: bool = False
) -> Any:
    """Returns the progress display that the flags select; see `make_progress`."""
    from orbit_runner.reporting.progress.factory import make_progress

    return make_progress(
        flags.progress,
        interval=flags.progress_interval,
        brief=brief,
        title=title,
        place=place,
    )


def messages_scope(flags: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Shows the messages before and after the display in the form that the flags select."""
    is_line = flags.progress in ("auto", "bar", "plain")
    return log_scope(PlainMessages() if is_line else progress_of(flags))


def parse_step(text: str) -> int:
    """Returns the step that a flag names."""
    if not is_step_number(text):
        raise argparse.ArgumentTypeError(
            f"got {shorten(text)!r}, allowed: a step from 1 to {INT_MAX}"
        )
    return int(text)


def is_step_number(text: str) -> bool:
    """Returns whether a text is the number of a step that a config allows."""
    return text.isdecimal() and len(text) <= len(str(INT_MAX)) and 1 <= int(text) <= INT_MAX


def _parse_seconds(text: str) -> float:
    """Returns the value of a flag in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed: a number of at least 0")
    return value


# No process can pass a null byte as an argument.
_PARSER_REQUEST = "--\0parser"


class _ParserFound(Exception):
    """Ends a command that `parser_of` calls."""

    def __init__(self, found: Parser) -> None:
        self.found = found


def parser_of(command: Callable[[Sequence[str]], int], *words: str) -> Parser | None:
    """Returns the parser with which a command parses its flags, or None if it has none.

    Args:
        command: The `main` function of the command.
        *words: The words that come first, such as `get` for `runner data get`.
    """
    try:
        command([*words, _PARSER_REQUEST])
    except _ParserFound as stop:
        return stop.found
    except RunnerError:
        return None
    return None


def parse_flags(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed flags, with (path, text) of each dotted setting in `dotted`.

    Accepts hyphens for underscores, such as `--model-dir`. Raises `RunnerError` if a flag is
    unknown, lacks its value or is not accepted by the command.
    """
    if _PARSER_REQUEST in arguments:
        raise _ParserFound(parser)
    flags, rest = parser.parse_known_args(normalize_spelling(parser, arguments))
    flags.dotted = []
    while rest:
        match = _SETTING_FLAG.match(rest[0])
        if not match:
            raise RunnerError(f"{_unknown_message(rest, parser)}\nsee `{parser.prog} --help`")
        rest.pop(0)
        _check_setting(parser, match[1])
        if "[" in match[1]:
            name = match[1].partition("[")[0]
            raise RunnerError(
                f"--{match[1]}: a list can only be set as a whole, such as --{name}='[1, 2]'"
            )
        if match[2] is None and (not rest or rest[0].startswith("--")):
            raise RunnerError(f"--{match[1]}: expected a value")
        flags.dotted.append((match[1], match[2] if match[2] is not None else rest.pop(0)))
    check_mode(getattr(flags, "mode", None))
    set_log_levels(flags)
    resolve_path_flags(parser.prog.partition(" ")[2], flags)
    return flags


def _check_setting(parser: Parser, path: str) -> None:
    """Raises an error if the command does not accept a setting."""
    if any(path == taken or path.startswith(f"{taken}.") for taken in parser.settings):
        return
    if parser.settings:
        allowed = ", ".join(
            f"--{taken}{'' if '.' in taken else '.NAME'}" for taken in parser.settings
        )
        by_name = {taken.rpartition(".")[2]: taken for taken in parser.settings if "." in taken}
        near = nearest_name_hint(path.rpartition(".")[2], by_name)
        raise RunnerError(
            f"--{path}: `{parser.prog}` does not accept this setting{near}\n"
            f"{parser.settings_rule}\nallowed: {allowed}\nsee `{parser.prog} --help`"
        )
    taken = ", ".join(name for action in declared_arguments(parser) if (name := _flag_name(action)))
    rule = f"{parser.settings_rule}\n" if parser.settings_rule else ""
    raise RunnerError(
        f"--{path}: `{parser.prog}` does not accept settings\n"
        f"{rule}allowed: {taken}\nsee `{parser.prog} --help`"
    )


def _flag_name(action: argparse.Action) -> str:
    if action.help == argparse.SUPPRESS or action.dest == "help":
        return ""
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


def normalize_spelling(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with all flags in the spelling that the parser knows."""
    actions = declared_arguments(parser)
    known = {option.lstrip("-") for action in actions for option in action.option_strings}
    return normalize_driver_flags(arguments, known)


def _unknown_message(rest: Sequence[str], parser: Parser) -> str:
    name = rest[0].partition("=")[0]
    section, dot, _ = name.removeprefix("--").partition(".")
    if dot and name.startswith("--"):
        if not parser.settings:
            _check_setting(parser, name.removeprefix("--"))
        if section in _SECTIONS:
            return f"{name}: expected --{section}.NAME=VALUE"
        return f"unknown section {section!r} in {name}{nearest_name_hint(section, _SECTIONS)}"
    if name.startswith("-"):
        bare = name.lstrip("-")
        for spelled_name in (bare, bare.removeprefix("no")):
            if answer := _explain_driver_flag(spelled_name, rest):
                return answer
    actions = declared_arguments(parser)
    known = [option for action in actions for option in action.option_strings]
    kind = "flag" if name.startswith("-") else "argument"
    return f"unknown {kind} {shorten(name)}{nearest_name_hint(name, known)}"


def _explain_driver_flag(name: str, rest: Sequence[str]) -> str:
    # Imported only here: the tables are long, and only needed for this error.
    from orbit_runner.cli.flags.old_flags import explain_old_flag

    old = explain_old_flag(name, rest)
    if name not in REPLACED:
        return old
    answer = f"--{name} is a flag of Model Garden's drivers; in runner: {REPLACED[name]}"
    return f"{answer}\n{old}" if old else answer


def build_request(flags: argparse.Namespace) -> Request:
    """Returns the request that the parsed flags describe."""
    fields = [
        (f"--{flag}", path, getattr(flags, flag))
        for flag, paths in SETTINGS_OF_FLAG.items()
        for path in paths
        if getattr(flags, flag) is not None and (getattr(flags, flag) or flag not in _MAY_BE_EMPTY)
    ]
    return Request(
        experiment=flags.experiment,
        config_files=_drop_empty(flags.config_file),
        gin_files=_drop_empty(flags.gin_file),
        params_overrides=_drop_empty(flags.params_override),
        gin_params=_drop_empty(flags.gin_param),
        flags=(*fields, *((f"--{path}", path, text) for path, text in flags.dotted)),
        imports=tuple(flags.imports or ()),
        strict=getattr(flags, "strict", False),
    )


def refuse_streams(flags: argparse.Namespace, reason: str) -> None:
    """Raises an error if a config file is a pipe or device, which can be read only once.

    `reason` tells which other processes read it.
    """
    for flag in ("experiment", "config_file", "gin_file"):
        values = getattr(flags, flag) or ()
        for name in (values,) if isinstance(values, str) else values:
            if is_stream(Path(name)):
                raise RunnerError(
                    f"--{flag}: {name} can be read only once, but {reason}\nuse a regular file"
                )


def print_notes(resolved: ResolvedConfig) -> None:
    """Prints notes about settings that have no effect, and that a change of a class discards."""
    if resolved.notes:
        print(note_text(resolved.notes), file=sys.stderr)
    for text in resolved.discarded:
        print(text, file=sys.stderr)


def _drop_empty(texts: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(text for text in texts or () if text)
