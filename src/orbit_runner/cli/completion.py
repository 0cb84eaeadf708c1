"""`runner --completion`: prints the script with which a shell completes commands and flags."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence

from orbit_runner.cli.command import Command, Parser, parse_flags
from orbit_runner.cli.flags.rows import flag
from orbit_runner.cli.main import COMMANDS, load_command
from orbit_runner.utils.streams import print_result

# Bash starts the command with the line in COMP_LINE. Without candidates, shells complete files.
_BASH = "complete -o default -C 'runner --completion --line 2>/dev/null' runner"
SCRIPTS = {
    "bash": _BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}",
    "fish": "complete --command runner --arguments "
    "'(COMP_LINE=(commandline --current-process --cut-at-cursor) runner --completion --line)'",
}
_DESCRIPTION = """\
Print the script that completes commands and flags in a shell.

  bash, in ~/.bashrc:                source <(runner --completion bash)
  zsh, in ~/.zshrc after compinit:   source <(runner --completion zsh)
  fish, once:  runner --completion fish > ~/.config/fish/completions/runner.fish"""


def main(flags: argparse.Namespace) -> int:
    """Prints a script, or the words that complete the line in COMP_LINE. Returns 0."""
    line = os.environ.get("COMP_LINE", "")
    cursor = int(os.environ.get("COMP_POINT", len(line)))
    print_result(SCRIPTS[flags.shell] if flags.shell else "\n".join(candidates(line[:cursor])))
    return 0


def candidates(line: str) -> list[str]:
    """Returns the commands or flags that complete the last word of a line, such as `runner sh`."""
    *before, word = f"{line}|".split()[1:] or ["|"]
    word = word.removesuffix("|")
    return [text for text in _words(before, word) if text.startswith(word)]


def _words(before: Sequence[str], word: str) -> Iterable[str]:
    if not before and not word.startswith("-"):
        return COMMANDS
    name, *rest = before if before and not before[0].startswith("-") else ["run", *before]
    if name not in COMMANDS:
        return ()
    command = load_command(name)
    if command.after_dashes and "--" in rest:
        command = load_command(command.after_dashes)
    actions = [action for action in command.parser().arguments if action.help != argparse.SUPPRESS]
    if word.startswith("-"):
        flags = (name for action in actions for name in action.option_strings)
        return [flag for flag in flags if flag.startswith("--")]
    choices = (action.choices for action in actions if not action.option_strings)
    return () if rest else next(filter(None, choices), ())


def _parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    # Bash adds the command and words of the line.
    if arguments[:1] == ["--line"]:
        return argparse.Namespace(shell="")
    return parse_flags(parser, arguments)


COMMAND = Command(
    "--completion",
    _DESCRIPTION,
    [flag("shell", "the shell", choices=SCRIPTS)],
    ["bash"],
    main,
    _parse,
)
