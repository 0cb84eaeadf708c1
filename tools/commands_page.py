"""The page of all commands, in the groups of `runner --help`: their examples and their help."""

from __future__ import annotations

import contextlib
import io
import os
from unittest import mock

from orbit_runner.cli.main import COMMANDS, GROUPS
from orbit_runner.cli.main import main as run_command

_COLUMNS = "88"
EXAMPLES = "\nexamples:\n"
_HEAD = """\
# Commands

All commands in the groups of `runner --help`, each with an example and with what
`runner COMMAND --help` prints. `runner --experiment=NAME` is short for
`runner run --experiment=NAME`. The [exit codes](configs.md#exit-codes) are the same for all
commands.
"""


def page() -> str:
    """Returns the text of the page."""
    with mock.patch.dict(os.environ, COLUMNS=_COLUMNS):  # argparse wraps lines at this width.
        parts = [_HEAD, *(_contents(group) for group in GROUPS)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _contents(group: str) -> str:
    parts = [f"## {group}"]
    for name in GROUPS[group]:
        parts += [f"### runner {name}", f"{COMMANDS[name][:1].upper()}{COMMANDS[name][1:]}."]
        parts.append(_section(name))
    return "\n\n".join(parts)


def _section(*words: str) -> str:
    """Returns the examples of a command, and its help without them."""
    text, _, examples = help_text(*words).partition(EXAMPLES)
    lines = "\n".join(line.removeprefix("  ") for line in examples.strip("\n").splitlines())
    return f"```sh\n{lines}\n```\n\n```text\n{text.strip()}\n```"


def help_text(*words: str) -> str:
    """Returns the `--help` output of a command."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        run_command([*words, "--help"])
    return output.getvalue()
