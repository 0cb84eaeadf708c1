"""Expands `~` in flags that are paths: the shell leaves it alone in `--model_dir=~/a`."""

from __future__ import annotations

import argparse
import os
from typing import Any

from orbit_runner.errors import RunnerError

# Name in the parsed flags: how messages call it.
_PATHS = {
    "model_dir": "--model_dir",
    "experiment": "--experiment",
    "config_file": "--config_file",
    "gin_file": "--gin_file",
    "checkpoint": "--checkpoint",
    "run": "RUN",
    "where": "WHERE",
    "files": "FILE",
    "left": "left",
    "right": "right",
    "to": "--to",
    "dir": "--dir",
    "origin": "--from",
    "logs": "--logs",
}


def expand_home(flags: argparse.Namespace) -> None:
    """Expands `~` and `~user` at the beginning of paths.

    Args:
        flags: The flags of a command, parsed; changed in place.

    Raises:
        RunnerError: There is no such user.
    """
    for name, shown in _PATHS.items():
        given: Any = getattr(flags, name, None)
        if isinstance(given, str):
            setattr(flags, name, _expanded(given, shown))
        elif given:
            setattr(flags, name, [_expanded(text, shown) for text in given])


def _expanded(text: str, shown: str) -> str:
    found = os.path.expanduser(text)
    if found.startswith("~"):
        user = found.partition("/")[0]
        raise RunnerError(
            f"{shown}: got {text!r}, and {user} has no home directory here\n"
            f"give the path in full, or ./{text} for a name that begins with ~"
        )
    return found
