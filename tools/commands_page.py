"""Writes docs/commands.md, the page of all commands: `python -m tools.commands_page`.

The page has the groups of `runner --help`, and the examples and the help of each command. A test
fails if the page is not up to date.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

from orbit_runner.cli.main import COMMANDS, GROUPS, load_command
from orbit_runner.cli.main import main as run_command

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
_COLUMNS = "88"
EXAMPLES = "\nexamples:\n"
_HEAD = """\
# Commands

All commands in the groups of `runner --help`, each with an example and with what
`runner COMMAND --help` prints. `runner --experiment=NAME` is short for
`runner run --experiment=NAME`. The [exit codes](exit_codes.md) are the same for all commands.
`python -m tools.commands_page` writes this page.
"""


def page() -> str:
    """Returns the text of the page."""
    parts = [_HEAD, *(_contents(group) for group in GROUPS)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _contents(group: str) -> str:
    parts = [f"## {group}"]
    for name in GROUPS[group]:
        parts += [f"### runner {name}", f"{COMMANDS[name][:1].upper()}{COMMANDS[name][1:]}."]
        parts.append(_section(name))
        for command in load_command(name).commands:
            if command.name != name:
                parts.append(f"#### runner {command.name}\n\n{_section(*command.name.split())}")
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


def main() -> int:
    """Writes the page."""
    os.environ["COLUMNS"] = _COLUMNS  # argparse wraps lines at this width.
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
