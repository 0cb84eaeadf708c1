"""Flags and arguments of commands as rows, from which the parser and its help are built."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag or an argument: its names, and the keywords of `ArgumentParser.add_argument`."""

    names: Sequence[str]
    options: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Group:
    """Flags that `--help` lists below a title, or of which only one may be given.

    Attributes:
        flags: The flags.
        title: The title; "" if only one of the flags may be given.
        help: The text below the title.
        required: Without a title: whether the command needs one of the flags.
    """

    flags: Sequence[Flag]
    title: str = ""
    help: str = ""
    required: bool = False


def flag(text: str, help: str, **options: Any) -> Flag:
    """Returns a flag that takes a value, such as `--step=N`, or an argument, such as `a=A`.

    What follows `=` stands for the value in `--help`. Several names are separated by spaces.
    """
    names, _, metavar = text.partition("=")
    if metavar := metavar or getattr(options.get("type"), "metavar", ""):
        options["metavar"] = metavar
    return Flag(names.split(), options | {"help": help})


def switch(name: str, help: str, **options: Any) -> Flag:
    """Returns a flag without a value."""
    return Flag([name], {"action": "store_true"} | options | {"help": help})


def add_flags(parser: Any, rows: Sequence[Flag | Group]) -> Iterator[argparse.Action]:
    """Adds rows to a parser, or to a group of one; yields what was added."""
    for row in rows:
        if isinstance(row, Flag):
            yield parser.add_argument(*row.names, **row.options)
        elif row.title:
            yield from add_flags(parser.add_argument_group(row.title, row.help or None), row.flags)
        else:
            group = parser.add_mutually_exclusive_group(required=row.required)
            yield from add_flags(group, row.flags)


HELP = Flag(["-h", "--help"], {"action": "help", "help": "show this help message and exit"})
JSON = switch("--json", "print the result as JSON")
