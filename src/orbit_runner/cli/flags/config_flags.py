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
    as_written_here,
    check_mode,
    show_logs,
)
from orbit_runner.cli.flags.path_flags import resolve_path_flags
from orbit_runner.config.errors import note_text
from orbit_runner.config.parsing.search_path import is_stream
from orbit_runner.config.resolve import Request, Resolved
from orbit_runner.errors import RunnerError, nearest, shorten
from orbit_runner.utils.log import PlainMessages, log_scope

FIELDS: dict[str, tuple[str, ...]] = {
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
_DOTTED = re.compile(rf"--((?:{'|'.join(_SECTIONS)})\.[\w.\[\]]+)(?:=(.*))?$", re.DOTALL)


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
        raise RunnerError(f"{message}\nsee `{self.prog} --help`")


def parser(command: str, description: str) -> Parser:
    """Returns a parser without flags for a command."""
    return Parser(
        prog=f"runner {command}".rstrip(),
        description=description,
        allow_abbrev=False,
        formatter_class=_HelpFormatter,
    )


def add_config_flags(to: Parser, *, experiment: str = _EXPERIMENT) -> None:
    """Adds the flags that make up a config; each one overrides those added before it.

    `experiment` is the help text of `--experiment`.
    """
    to.settings = _SECTIONS
    group = to.add_argument_group(
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
    for flag, paths in FIELDS.items():
        add(f"--{flag}", metavar="VALUE", help=f"set {' and '.join(paths)}")
    to.add_argument(
        "--strict",
        action="store_true",
        help="reject Model Garden settings that have no effect; by default, only print a note",
    )
    to.add_argument(
        "--import",
        dest="imports",
        action="append",
        metavar="MODULE",
        help="import a module that registers custom tasks; may be repeated",
    )
    add_driver_flags(to)


def add_progress_flags(to: Parser) -> None:
    """Adds `--progress`, `--progress_interval` and `--quiet`."""
    to.add_argument(
        "--progress",
        choices=("auto", "bar", "plain", "json", "none"),
        default="auto",
        help="progress on standard error: a live display with a bar, plain lines, one JSON object "
        "per line and event, or warnings and errors only; auto: bar on a terminal, otherwise plain",
    )
    to.add_argument(
        "--progress_interval",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="time between two lines of training progress with plain or json",
    )
    to.add_argument(
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


def step_number(text: str) -> int:
    """Returns the step that a flag names."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed: a step of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    """Returns the value of a flag in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed: a number of at least 0")
    return value


# No process can pass a null byte as an argument.
_ASK = "--\0parser"


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
        command([*words, _ASK])
    except _ParserFound as stop:
        return stop.found
    except RunnerError:
        return None
    return None


def parse(to: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed flags, with (path, text) of each dotted setting in `dotted`.

    Accepts hyphens for underscores, such as `--model-dir`. Raises `RunnerError` if a flag is
    unknown, lacks its value or is not accepted by the command.
    """
    if _ASK in arguments:
        raise _ParserFound(to)
    flags, rest = to.parse_known_args(normalize_spelling(to, arguments))
    flags.dotted = []
    while rest:
        match = _DOTTED.match(rest[0])
        if not match:
            raise RunnerError(f"{_unknown(rest, to)}\nsee `{to.prog} --help`")
        rest.pop(0)
        _check_taken(to, match[1])
        if "[" in match[1]:
            name = match[1].partition("[")[0]
            raise RunnerError(
                f"--{match[1]}: a list can only be set as a whole, such as --{name}='[1, 2]'"
            )
        if match[2] is None and (not rest or rest[0].startswith("--")):
            raise RunnerError(f"--{match[1]}: expected a value")
        flags.dotted.append((match[1], match[2] if match[2] is not None else rest.pop(0)))
    check_mode(getattr(flags, "mode", None))
    show_logs(flags)
    resolve_path_flags(to.prog.partition(" ")[2], flags)
    return flags


def _check_taken(to: Parser, path: str) -> None:
    """Raises an error if the command does not accept a setting."""
    if any(path == taken or path.startswith(f"{taken}.") for taken in to.settings):
        return
    if to.settings:
        allowed = ", ".join(f"--{taken}{'' if '.' in taken else '.NAME'}" for taken in to.settings)
        by_name = {taken.rpartition(".")[2]: taken for taken in to.settings if "." in taken}
        near = nearest(path.rpartition(".")[2], by_name)
        raise RunnerError(
            f"--{path}: `{to.prog}` does not accept this setting{near}\n"
            f"{to.settings_rule}\nallowed: {allowed}\nsee `{to.prog} --help`"
        )
    taken = ", ".join(name for action in to._actions if (name := _name_of(action)))
    rule = f"{to.settings_rule}\n" if to.settings_rule else ""
    raise RunnerError(
        f"--{path}: `{to.prog}` does not accept settings\n"
        f"{rule}allowed: {taken}\nsee `{to.prog} --help`"
    )


def _name_of(action: argparse.Action) -> str:
    if action.help == argparse.SUPPRESS or action.dest == "help":
        return ""
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


def normalize_spelling(to: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with all flags in the spelling that the parser knows."""
    known = {option.lstrip("-") for action in to._actions for option in action.option_strings}
    return as_written_here(arguments, known)


def _unknown(rest: Sequence[str], to: Parser) -> str:
    name = rest[0].partition("=")[0]
    section, dot, _ = name.removeprefix("--").partition(".")
    if dot and name.startswith("--"):
        if not to.settings:
            _check_taken(to, name.removeprefix("--"))
        if section in _SECTIONS:
            return f"{name}: expected --{section}.NAME=VALUE"
        return f"unknown section {section!r} in {name}{nearest(section, _SECTIONS)}"
    if name.startswith("-"):
        bare = name.lstrip("-")
        for spelled_name in (bare, bare.removeprefix("no")):
            if answer := _of_other_drivers(spelled_name, rest):
                return answer
    known = [option for action in to._actions for option in action.option_strings]
    kind = "flag" if name.startswith("-") else "argument"
    return f"unknown {kind} {shorten(name)}{nearest(name, known)}"


def _of_other_drivers(name: str, rest: Sequence[str]) -> str:
    # Imported only here: the tables are long, and only needed for this error.
    from orbit_runner.cli.flags.old_flags import explain_old_flag

    old = explain_old_flag(name, rest)
    if name not in REPLACED:
        return old
    answer = f"--{name} is a flag of Model Garden's drivers; in runner: {REPLACED[name]}"
    return f"{answer}\n{old}" if old else answer


def request(flags: argparse.Namespace) -> Request:
    """Returns the request that the parsed flags describe."""
    fields = [
        (f"--{flag}", path, getattr(flags, flag))
        for flag, paths in FIELDS.items()
        for path in paths
        if getattr(flags, flag) is not None and (getattr(flags, flag) or flag not in _MAY_BE_EMPTY)
    ]
    return Request(
        experiment=flags.experiment,
        config_files=_non_empty(flags.config_file),
        gin_files=_non_empty(flags.gin_file),
        params_overrides=_non_empty(flags.params_override),
        gin_params=_non_empty(flags.gin_param),
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


def print_notes(resolved: Resolved) -> None:
    """Prints a note about the settings that have no effect, if any."""
    if resolved.notes:
        print(note_text(resolved.notes), file=sys.stderr)


def _non_empty(texts: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(text for text in texts or () if text)
