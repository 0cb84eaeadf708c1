"""What a command declares: its help, flags and examples, and the function that runs it."""

from __future__ import annotations

import argparse
import dataclasses
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import NoReturn

from orbit_runner.cli.flags.driver_flags import (
    REPLACED,
    check_mode,
    normalize_driver_flags,
    set_log_levels,
)
from orbit_runner.cli.flags.values import Value, resolve_paths
from orbit_runner.errors import RunnerError, nearest_name_hint, shorten, unknown_name_message
from orbit_runner.tf_internals import declared_arguments

SECTIONS = ("task", "trainer", "runtime")
_SETTING_FLAG = re.compile(rf"--((?:{'|'.join(SECTIONS)})\.[\w.\[\]]+)(?:=(.*))?$", re.DOTALL)


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
    """An argument parser that reports errors in one line and checks which settings it accepts."""

    # Dotted paths that `--SECTION.NAME=VALUE` may set, with all below them.
    settings: tuple[str, ...] = ()
    settings_rule: str = ""  # why other settings are rejected, for messages

    def __init__(self, command: str, help: str = "", examples: Sequence[str] = ()) -> None:
        super().__init__(
            prog=f"runner {command}",
            description=help,
            epilog=_format_examples(examples),
            allow_abbrev=False,
            formatter_class=_HelpFormatter,
        )

    @property
    def arguments(self) -> list[argparse.Action]:
        """The flags and arguments."""
        return declared_arguments(self)

    def error(self, message: str) -> NoReturn:
        """Raises a `RunnerError` instead of printing the error and exiting."""
        for kind, expected in (("int", "an integer"), ("float", "a number")):
            message = re.sub(
                rf"invalid {kind} value: (.*)", rf"got \1, expected {expected}", message, flags=re.S
            )
        raise RunnerError(f"{message}\nsee `{self.prog} --help`", code="wrong-usage")


def parse_flags(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed flags, with (path, text) of each dotted setting in `dotted`.

    Accepts hyphens for underscores, such as `--model-dir`. Raises `RunnerError` if a flag is
    unknown, lacks its value or is not accepted by the command.
    """
    flags, rest = parser.parse_known_args(normalize_spelling(parser, arguments))
    flags.dotted = []
    while rest:
        match = _SETTING_FLAG.match(rest[0])
        if not match:
            raise RunnerError(
                f"{_unknown_message(rest, parser)}\nsee `{parser.prog} --help`", code="unknown-flag"
            )
        rest.pop(0)
        _check_setting(parser, match[1])
        if "[" in match[1]:
            name = match[1].partition("[")[0]
            raise RunnerError(
                f"a list can only be set as a whole, such as --{name}='[1, 2]'",
                path=f"--{match[1]}",
                code="wrong-type",
            )
        if match[2] is None and (not rest or rest[0].startswith("--")):
            raise RunnerError("expected a value", path=f"--{match[1]}", code="not-set")
        flags.dotted.append((match[1], match[2] if match[2] is not None else rest.pop(0)))
    check_mode(getattr(flags, "mode", None))
    set_log_levels(flags)
    resolve_paths(parser.arguments, flags)
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
            f"`{parser.prog}` does not accept this setting{near}\n"
            f"{parser.settings_rule}\nallowed: {allowed}\nsee `{parser.prog} --help`",
            path=f"--{path}",
            code="unknown-flag",
        )
    taken = ", ".join(name for action in parser.arguments if (name := _flag_name(action)))
    rule = f"{parser.settings_rule}\n" if parser.settings_rule else ""
    raise RunnerError(
        f"`{parser.prog}` does not accept settings\n"
        f"{rule}allowed: {taken}\nsee `{parser.prog} --help`",
        path=f"--{path}",
        code="unknown-flag",
    )


def _flag_name(action: argparse.Action) -> str:
    if action.help == argparse.SUPPRESS or action.dest == "help":
        return ""
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


def normalize_spelling(parser: Parser, arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with all flags in the spelling that the parser knows."""
    known = {option.lstrip("-") for action in parser.arguments for option in action.option_strings}
    return normalize_driver_flags(arguments, known)


def _unknown_message(rest: Sequence[str], parser: Parser) -> str:
    name = rest[0].partition("=")[0]
    section, dot, _ = name.removeprefix("--").partition(".")
    if dot and name.startswith("--"):
        if not parser.settings:
            _check_setting(parser, name.removeprefix("--"))
        if section in SECTIONS:
            return f"{name}: expected --{section}.NAME=VALUE"
        return f"unknown section {section!r} in {name}{nearest_name_hint(section, SECTIONS)}"
    if name.startswith("-"):
        bare = name.lstrip("-")
        for spelled_name in (bare, bare.removeprefix("no")):
            if answer := _explain_driver_flag(spelled_name, rest):
                return answer
    known = [option for action in parser.arguments for option in action.option_strings]
    if name.startswith("-"):
        return f"unknown flag {shorten(name)}{nearest_name_hint(name, known)}"
    hint = f"; did you mean --experiment={shorten(name)}?" if "--experiment" in known else ""
    return f"unknown argument {shorten(name)}{hint}"


def _explain_driver_flag(name: str, rest: Sequence[str]) -> str:
    # Imported only here: the tables are long, and only needed for this error.
    from orbit_runner.cli.flags.old_flags import explain_old_flag

    old = explain_old_flag(name, rest)
    if name not in REPLACED:
        return old
    answer = f"--{name} is a flag of Model Garden's drivers; in runner: {REPLACED[name]}"
    return f"{answer}\n{old}" if old else answer


@dataclasses.dataclass(frozen=True)
class Command:
    """A command. Its module in `cli/commands/` contains it as `COMMAND`.

    Attributes:
        name: The words after `runner`.
        help: What it does, for `--help`.
        flags: Adds the flags and arguments to a parser.
        examples: Arguments of the command, for `--help`.
        run: Runs the command with its parsed flags, and returns the exit code. The words that were
            parsed are `flags.arguments`.
        parse: Parses the words after the name.
        after_dashes: The command whose flags follow `--`.
    """

    name: str
    help: str
    flags: Callable[[Parser], object]
    examples: Sequence[str]
    run: Callable[[argparse.Namespace], int]
    parse: Callable[[Parser, Sequence[str]], argparse.Namespace] = parse_flags
    after_dashes: str = ""

    @property
    def commands(self) -> tuple[Command, ...]:
        """The command itself, as a group has several."""
        return (self,)

    def find(self, arguments: Sequence[str]) -> tuple[Command, Sequence[str]]:
        """Returns the command itself and its arguments, as a group may find none."""
        return self, arguments

    def command_lines(self) -> list[str]:
        """Returns the examples as they are typed."""
        return [f"runner {self.name} {example}".rstrip() for example in self.examples]

    def parser(self) -> Parser:
        """Returns the parser of its flags."""
        parser = Parser(self.name, self.help, self.command_lines())
        self.flags(parser)
        for action in parser.arguments:
            if isinstance(action.type, Value) and not action.metavar:
                action.metavar = action.type.metavar
        return parser

    def main(self, arguments: Sequence[str]) -> int:
        """Parses the words after the name, and runs the command. Returns the exit code."""
        flags = self.parse(self.parser(), arguments)
        flags.arguments = arguments
        return self.run(flags)


@dataclasses.dataclass(frozen=True)
class CommandGroup:
    """Commands whose names begin with the same word, such as `data list` and `data get`.

    Attributes:
        name: The first word.
        kind: What the second word is, for messages.
        help: The usage.
        commands: The commands, in the order of the documentation.
        advice: What is added to the message about an unknown second word.
    """

    name: str
    kind: str
    help: str
    commands: Sequence[Command]
    advice: str = ""

    def names(self) -> list[str]:
        """Returns the words that may follow the first one."""
        return [command.name.split()[1] for command in self.commands]

    def find(self, arguments: Sequence[str]) -> tuple[Command, Sequence[str]] | None:
        """Returns the command that arguments select, and its own arguments, if there is one."""
        for command in self.commands:
            if arguments[:1] == command.name.split()[1:]:
                return command, arguments[1:]
        return None

    def main(self, arguments: Sequence[str]) -> int:
        """Runs one of the commands, or prints the usage. Returns the exit code."""
        first = arguments[0] if arguments else "--help"
        if first in ("--help", "-h"):
            examples = [line for command in self.commands for line in command.command_lines()]
            print(f"{self.help}\n\n{_format_examples(examples)}")
            return 0
        selection = self.find(arguments)
        if selection is None:
            raise RunnerError(
                unknown_name_message(self.kind, first, self.names()) + self.advice,
                code="unknown-command",
            )
        command, rest = selection
        return command.main(rest)
