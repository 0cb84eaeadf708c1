"""`runner completion`: prints the script with which a shell completes command lines."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.cli.flags.config_flags import make_parser, parse_flags

SHELLS = ("bash", "zsh", "fish")
SCRIPTS = Path(__file__).resolve().parents[2] / "templates" / "completion"
_DESCRIPTION = """\
Print the script that completes commands, flags, experiments, settings and their values in a shell.

  bash, in ~/.bashrc:                source <(runner completion bash)
  zsh, in ~/.zshrc after compinit:   source <(runner completion zsh)
  fish, once:  runner completion fish > ~/.config/fish/completions/runner.fish"""
# The scripts call `runner completion --words WORD…`.
_WORDS_FLAG = "--words"
_SLOW_MODULES = ("tensorflow", "tf_keras", "keras", "official", "orbit")


def main(arguments: Sequence[str]) -> int:
    """Prints a completion script, or the candidates that such a script asks for. Returns 0."""
    if arguments and arguments[0] == _WORDS_FLAG:
        _print_candidates(arguments[1:])
        return 0
    parser = make_parser("completion", _DESCRIPTION)
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    flags = parse_flags(parser, arguments)
    print((SCRIPTS / f"runner.{flags.shell}").read_text(encoding="utf-8"), end="")
    return 0


def _print_candidates(words: Sequence[str]) -> None:
    """Prints a candidate and a tab and its description per line; nothing if anything fails."""
    found: list[tuple[str, str]] = []
    # What imported modules print would become candidates.
    with (
        contextlib.suppress(Exception, SystemExit),
        contextlib.redirect_stdout(io.StringIO()),
        _blocked_imports_scope(),
    ):
        from orbit_runner.cli.completion.candidates import candidates

        found = candidates(words)
    for text, help in found:
        if text.isprintable():
            print(f"{text}\t{' '.join(help.split())}")


@contextlib.contextmanager
def _blocked_imports_scope() -> Iterator[None]:
    """Makes imports of TensorFlow fail, because they would take seconds."""
    blocked = [name for name in _SLOW_MODULES if name not in sys.modules]
    sys.modules.update(dict.fromkeys(blocked))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in blocked:
            sys.modules.pop(name, None)
