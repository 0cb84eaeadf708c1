"""What a command declares: its help, flags and examples, and the function that runs it."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from orbit_runner.cli.flags.rows import HELP, Flag, Group, add_flags
from orbit_runner.cli.flags.values import (
    SETTING_FLAG,
    OverrideAction,
    resolve_values,
)
from orbit_runner.errors import RunnerError, nearest_name_hint, shorten
from orbit_runner.utils.log import log_scope
from orbit_runner.utils.streams import print_result

SECTIONS = ("task", "trainer", "runtime")
_SETTING = re.compile(rf"({'|'.join(SECTIONS)})\.[\w.\[\]]+")


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Adds the default of each flag to its help text, and breaks the lines of paragraphs anew."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        wrapper = textwrap.TextWrapper(
            width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        # The lines of examples and lists are indented.
        return "\n\n".join(
            textwrap.indent(block, indent) if "\n " in block else wrapper.fill(block)
            for block in text.split("\n\n")
        )

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        if not action.option_strings or default in (None, False, "", argparse.SUPPRESS):
            return text
        return f"{text} (default: {default})".lstrip()


def _format_examples(examples: Sequence[str]) -> str:
    return "\n  ".join(["examples:", *examples]) if examples else ""


class Parser(argparse.ArgumentParser):
    """The parser of a command, which reports errors in one line.

    `arguments` are the flags and arguments, without the one that stands for all settings.
    """

    def __init__(self, command: Command) -> None:
        super().__init__(
            prog=f"runner {command.name}",
            usage=command.usage,
            description=command.help,
            epilog=_format_examples(command.command_lines()),
            add_help=False,
            allow_abbrev=False,
            formatter_class=_HelpFormatter,
        )
        self.settings = command.settings
        self.settings_rule = command.settings_rule
        self.mixes = command.mixes
        self.arguments = [*add_flags(self, [HELP, *command.flags])]
        self.add_argument(SETTING_FLAG, action=OverrideAction, help=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        """Raises a `RunnerError` instead of printing the error and exiting."""
        for kind, expected in (("int", "an integer"), ("float", "a number")):
            message = re.sub(
                rf"invalid {kind} value: (.*)", rf"got \1, expected {expected}", message, flags=re.S
            )
        raise RunnerError(f"{message}\nsee `{self.prog} --help`", code="wrong-usage")


def parse_flags(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed flags. Those that override settings are in `overrides`, in their order.

    Raises `RunnerError` if a flag is unknown, lacks its value or is not accepted by the command.
    """
    flags = argparse.Namespace(overrides=[])
    parse = parser.parse_known_intermixed_args if parser.mixes else parser.parse_known_args
    _, rest = parse([*_known_words(parser, arguments)], flags)
    if rest:
        raise RunnerError(
            f"{_unknown_message(rest[0], parser)}\nsee `{parser.prog} --help`",
            code="unknown-flag",
        )
    _set_verbosity(flags)
    resolve_values(parser.arguments, flags)
    return flags


def _known_words(parser: Parser, arguments: Sequence[str]) -> Iterator[str]:
    """Yields the arguments, with each `--SECTION.NAME=VALUE` as a flag that argparse knows."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    rest = [*arguments[:at]]
    while rest:
        word = rest.pop(0)
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--") or "." not in name:
            yield word
            continue
        _check_setting(parser, name)
        if not equals and (not rest or rest[0].startswith("--")):
            raise RunnerError("expected a value", path=f"--{name}", code="not-set")
        yield f"{SETTING_FLAG}={name}={text if equals else rest.pop(0)}"
    yield from arguments[at:]


def _check_setting(parser: Parser, path: str) -> None:
    """Raises an error if a path is not that of a setting, or the command does not accept it."""
    if parser.settings and not _SETTING.fullmatch(path):
        section = path.partition(".")[0]
        near = nearest_name_hint(section, SECTIONS)
        message = f"unknown section {section!r} in --{path}{near}"
        if section in SECTIONS:
            message = f"--{path}: expected --{section}.NAME=VALUE"
        raise RunnerError(f"{message}\nsee `{parser.prog} --help`", code="unknown-flag")
    _check_accepted(parser, path)
    if "[" in path:
        raise RunnerError(
            f"a list can only be set as a whole, such as --{path.partition('[')[0]}='[1, 2]'",
            path=f"--{path}",
            code="wrong-type",
        )


def _check_accepted(parser: Parser, path: str) -> None:
    if any(path == taken or path.startswith(f"{taken}.") for taken in parser.settings):
        return
    taken = [f"--{taken}{'' if '.' in taken else '.NAME'}" for taken in parser.settings]
    by_name = {name.rpartition(".")[2]: name for name in parser.settings if "." in name}
    near = nearest_name_hint(path.rpartition(".")[2], by_name)
    what = f"this setting{near}" if taken else "settings"
    rule = f"{parser.settings_rule}\n" if parser.settings_rule else ""
    allowed = ", ".join(taken or filter(None, map(_flag_name, parser.arguments)))
    raise RunnerError(
        f"`{parser.prog}` does not accept {what}\n{rule}allowed: {allowed}\n"
        f"see `{parser.prog} --help`",
        path=f"--{path}",
        code="unknown-flag",
    )


def _flag_name(action: argparse.Action) -> str:
    if action.help == argparse.SUPPRESS or action.dest == "help":
        return ""
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


def _set_verbosity(flags: argparse.Namespace) -> None:
    """Sets the log level of Model Garden, for commands with `--verbosity`."""
    verbosity = getattr(flags, "verbosity", None)
    if verbosity is not None:
        absl_logging: Any = importlib.import_module("absl.logging")
        absl_logging.use_absl_handler()
        absl_logging.set_verbosity(verbosity)


def _unknown_message(word: str, parser: Parser) -> str:
    name = word.partition("=")[0]
    known = [option for action in parser.arguments for option in action.option_strings]
    if name.startswith("-"):
        if parser.settings:
            from orbit_runner.config.schema.experiment import ExperimentConfig
            from orbit_runner.config.serialize import flat_settings

            known += [f"--{path}" for path in flat_settings(ExperimentConfig())]
        return f"unknown flag {shorten(name)}{nearest_name_hint(name, known)}"
    hint = f"; did you mean --experiment={shorten(name)}?" if "--experiment" in known else ""
    return f"unknown argument {shorten(name)}{hint}"


def emit(flags: argparse.Namespace, values: object, lines: Iterable[str], code: int = 0) -> int:
    """Prints the result of a command: `values` as JSON with `--json`, otherwise lines of text.

    Returns the exit code.
    """
    text = json.dumps(values, indent=2, ensure_ascii=False) if flags.json else "\n".join(lines)
    print_result(text, is_data=flags.json)
    return code


@contextlib.contextmanager
def _messages_scope(flags: argparse.Namespace) -> Iterator[None]:
    """Shows messages as `--progress` selects; those of commands without it as plain lines."""
    if getattr(flags, "progress", "") != "none":
        yield
        return
    from orbit_runner.cli.flags.config_flags import progress_of

    with log_scope(progress_of(flags)):
        yield


@dataclasses.dataclass(frozen=True)
class Command:
    """A command. Its module in `cli/commands/` contains it as `COMMAND`.

    Attributes:
        name: The word after `runner`.
        help: What it does, for `--help`.
        flags: The flags and arguments.
        examples: Arguments of the command, for `--help`.
        run: Runs the command with its parsed flags, and returns the exit code. The words that were
            parsed are `flags.arguments`.
        parse: Parses the words after the name.
        settings: Dotted paths that `--SECTION.NAME=VALUE` may set, with all below them.
        settings_rule: Why other settings are rejected, for messages.
        usage: The first line of `--help`; None for the one of argparse.
        mixes: Whether there may be words on both sides of a flag.
        after_dashes: The command whose flags follow `--`.
    """

    name: str
    help: str
    flags: Sequence[Flag | Group]
    examples: Sequence[str]
    run: Callable[[argparse.Namespace], int]
    parse: Callable[[Parser, Sequence[str]], argparse.Namespace] = parse_flags
    settings: Sequence[str] = ()
    settings_rule: str = ""
    usage: str | None = None
    mixes: bool = False
    after_dashes: str = ""

    def command_lines(self) -> list[str]:
        """Returns the examples as they are typed."""
        return [f"runner {self.name} {example}".rstrip() for example in self.examples]

    def parser(self) -> Parser:
        """Returns the parser of its flags."""
        return Parser(self)

    def main(self, arguments: Sequence[str]) -> int:
        """Parses the words after the name, and runs the command. Returns the exit code."""
        flags = self.parse(self.parser(), arguments)
        flags.arguments = arguments
        with _messages_scope(flags):
            return self.run(flags)
