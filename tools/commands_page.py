"""Writes docs/commands.md, the page of all commands: `python -m tools.commands_page`.

The page contains the `--help` output of each command. A test fails if the page is not up to date.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

from orbit_runner.cli.main import COMMANDS, load_command
from orbit_runner.cli.main import main as run_command

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
_COLUMNS = "88"
_HEAD = """\
# Commands

What `runner COMMAND --help` prints. `runner --experiment=NAME` is short for
`runner run --experiment=NAME`. The [exit codes](exit_codes.md) are the same for all commands.
`python -m tools.commands_page` writes this page.
"""


def page() -> str:
    """Returns the text of the page."""
    parts = [_HEAD]
    for name, summary in COMMANDS.items():
        parts.append(f"## runner {name}\n\n{summary[:1].upper()}{summary[1:]}.")
        parts.append(_block(name))
        for command in load_command(name).commands:
            if command.name != name:
                parts.append(f"### runner {command.name}")
                parts.append(_block(*command.name.split()))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _block(*words: str) -> str:
    return f"```text\n{help_text(*words).strip()}\n```"


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
