"""`runner completion`: prints the script with which a shell completes command lines.

The script calls `runner completion --words WORD…`, which completes the last word.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.cli.command import Command, CommandGroup, Parser, parse_flags
from orbit_runner.cli.flags.config_flags import SETTINGS_OF_FLAG
from orbit_runner.cli.flags.values import (
    SETTING,
    Candidates,
    PathValue,
    Value,
    path_setting_values,
)
from orbit_runner.cli.main import COMMANDS, load_command
from orbit_runner.config.describe import Setting, declared_settings
from orbit_runner.config.errors import Origin
from orbit_runner.config.resolve import OFFICIAL, Request, import_modules, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig

SHELLS = ("bash", "zsh", "fish")
SCRIPTS = Path(__file__).resolve().parents[2] / "templates" / "completion"
_DESCRIPTION = """\
Print the script that completes commands, flags, experiments, settings and their values in a shell.

  bash, in ~/.bashrc:                source <(runner completion bash)
  zsh, in ~/.zshrc after compinit:   source <(runner completion zsh)
  fish, once:  runner completion fish > ~/.config/fish/completions/runner.fish"""
_WORDS_FLAG = "--words"
_SLOW_MODULES = ("tensorflow", "tf_keras", "keras", "official", "orbit")


def main(flags: argparse.Namespace) -> int:
    """Prints a completion script, or the candidates that such a script asks for. Returns 0."""
    if flags.words is None:
        print((SCRIPTS / f"runner.{flags.shell}").read_text(encoding="utf-8"), end="")
    else:
        _print_candidates(flags.words)
    return 0


def _add_flags(parser: Parser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def _parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    if arguments[:1] == [_WORDS_FLAG]:
        return argparse.Namespace(words=arguments[1:])
    flags = parse_flags(parser, arguments)
    flags.words = None
    return flags


def _print_candidates(words: Sequence[str]) -> None:
    """Prints a candidate and a tab and its description per line; nothing if anything fails."""
    completions: list[tuple[str, str]] = []
    # What imported modules print would become candidates.
    with (
        contextlib.suppress(Exception, SystemExit),
        contextlib.redirect_stdout(io.StringIO()),
        _blocked_imports_scope(),
    ):
        completions = candidates(words)
    for text, help in completions:
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


@dataclasses.dataclass(frozen=True)
class _Line:
    """The words between the name of a command and the cursor."""

    words: tuple[str, ...]
    parser: Parser

    def flags(self) -> list[tuple[str, str]]:
        """Returns (name without dashes, value) of each flag with a value."""
        flags_with_values = []
        for index, word in enumerate(self.words):
            name, equals, value = word.lstrip("-").partition("=")
            if word.startswith("-") and equals:
                flags_with_values.append((name, value))
            elif self._takes_next(word) and index + 1 < len(self.words):
                flags_with_values.append((name, self.words[index + 1]))
        return flags_with_values

    def arguments(self) -> list[str]:
        """Returns the words that are neither flags nor their values."""
        return [
            word
            for index, word in enumerate(self.words)
            if not word.startswith("-") and not (index and self._takes_next(self.words[index - 1]))
        ]

    def open_flag(self) -> str:
        """Returns the flag, without dashes, whose value comes next; "" if there is none."""
        last = self.words[-1] if self.words else ""
        return last.lstrip("-") if self._takes_next(last) else ""

    def positionals(self) -> list[argparse.Action]:
        """Returns the declarations of the words that are not flags."""
        return [action for action in self.parser.arguments if not action.option_strings]

    def action(self, name: str) -> argparse.Action | None:
        """Returns the declaration of a flag, given without dashes."""
        options = (f"--{name.replace('-', '_')}", f"-{name}")
        matches = (a for a in self.parser.arguments if {*options} & {*a.option_strings})
        return next(matches, None)

    def _takes_next(self, word: str) -> bool:
        if not word.startswith("-") or "=" in word or word == "--":
            return False
        action = self.action(word.lstrip("-"))
        return _takes_value(action) if action is not None else "." in word


def _takes_value(action: argparse.Action) -> bool:
    """Returns whether a flag requires a value, so that the next word is one."""
    return action.nargs is None


def candidates(words: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the completions of the last word, with a description of each.

    A candidate that ends with `=`, `.` or `/` is the beginning of a word.

    Args:
        words: The words after `runner`, as they are typed. The last one ends at the cursor, and is
            empty after a space.

    Returns:
        Whole words that begin with the last word, each with one line of help.

    Raises:
        RunnerError: If an experiment or a config file on the line has an error.
    """
    *before, word = [_remove_quotes(text) for text in words] or [""]
    completions = dict(_all_candidates(before, word))
    return [(text, help) for text, help in completions.items() if text.startswith(word)]


def _all_candidates(before: Sequence[str], word: str) -> Candidates:
    if before in ([], ["help"]) and not word.startswith("-"):
        return COMMANDS.items()
    name, rest = (before[0], [*before[1:]]) if before else ("run", [])
    if name.startswith("-"):
        name = "run"
        rest = [*before]
    if name not in COMMANDS:
        return []
    command = load_command(name)
    if isinstance(command, CommandGroup) and not rest:
        return [(name, "") for name in command.names()]
    selection = command.find(rest)
    if selection is None:
        return []
    chosen, words = selection
    if chosen.after_dashes and "--" in words:
        return _all_candidates([chosen.after_dashes, *words[words.index("--") + 1 :]], word)
    return _command_candidates(_Line(tuple(words), chosen.parser()), word)


def _command_candidates(line: _Line, word: str) -> Candidates:
    if line.open_flag() and not word.startswith("--"):
        return _value_candidates(line, line.open_flag(), word)
    if word.startswith("-"):
        name, equals, value = word.partition("=")
        if equals:
            completions = _value_candidates(line, name.lstrip("-"), value)
            return [(f"{name}={text}", help) for text, help in completions]
        return [*_flag_candidates(line.parser), *_path_candidates(line, word.lstrip("-"), "--")]
    return _argument_candidates(line, word)


def _flag_candidates(parser: Parser) -> Iterator[tuple[str, str]]:
    for action in parser.arguments:
        if action.help == argparse.SUPPRESS:
            continue
        for option in action.option_strings:
            if option.startswith("--"):
                yield option + "=" * _takes_value(action), str(action.help)


def _argument_candidates(line: _Line, word: str) -> Candidates:
    """Returns candidates for a word that is not a flag."""
    index = len(line.arguments())
    declared = line.positionals()
    if not declared or (index >= len(declared) and declared[-1].nargs not in ("+", "*")):
        return []
    return _values(line, declared[min(index, len(declared) - 1)], word)


def _value_candidates(line: _Line, name: str, word: str) -> Candidates:
    """Returns the values of a flag or of a setting."""
    action = line.action(name)
    if action is None:
        return _setting_value_candidates(line, name, word) if "." in name else []
    return _values(line, action, word)


def _values(line: _Line, action: argparse.Action, word: str) -> Candidates:
    if action.choices is not None:
        return [(str(choice), "") for choice in action.choices]
    if isinstance(action.type, Value):
        if action.type.completes is not SETTING.completes:
            return action.type.completes(word)
        end = "" if action.option_strings else "="  # An argument is a path without a value.
        return [(text.rstrip(end), help) for text, help in _path_candidates(line, word, "")]
    if action.dest in SETTINGS_OF_FLAG:
        return _setting_value_candidates(line, SETTINGS_OF_FLAG[action.dest][0], word)
    return []


def _setting_value_candidates(line: _Line, path: str, word: str) -> Candidates:
    listed = [
        value
        for setting in _known_settings(line)
        if setting.path == path
        for value in setting.values
    ]
    if listed:
        return [(value, "") for value in listed]
    return path_setting_values(path, word)


def _path_candidates(line: _Line, word: str, dashes: str) -> Iterator[tuple[str, str]]:
    """Yields the settings and sections directly below the section that a word names."""
    taken = line.parser.settings
    above = word.rpartition(".")[0]
    if dashes and not (taken and _has_overlap(above or word, taken)):
        return
    if dashes and not above:  # Without reading the experiment, which takes longer.
        yield from ((f"{dashes}{name}.", "") for name in {t.partition(".")[0]: "" for t in taken})
        return
    for setting in _known_settings(line):
        parent = setting.path.rpartition(".")[0]
        if (
            parent != above
            or "[" in setting.path
            or (dashes and not _has_overlap(setting.path, taken))
        ):
            continue
        yield f"{dashes}{setting.path}{'.' if setting.is_section else '='}", setting.help


def _has_overlap(path: str, taken: Sequence[str]) -> bool:
    """Returns whether a path is above or below one of several others, or begins one."""
    return any(f"{path}.".startswith(f"{t}.") or t.startswith(path) for t in taken)


def _known_settings(line: _Line) -> list[Setting]:
    """Returns the settings of the experiment on the line, or of all tasks."""
    given = line.flags()
    named = [(name, text) for name, text in given if name.endswith((".name", ".type"))]
    imports = tuple(text for name, text in given if name == "import")
    experiment = dict(given).get("experiment")
    first = line.positionals()[:1]
    if first and isinstance(first[0].type, PathValue) and first[0].type.holds_config:
        experiment = next(iter(line.arguments()), experiment)
    if experiment is None or experiment.startswith(OFFICIAL):
        import_modules(imports, Origin("--import"))
        settings = declared_settings(ExperimentConfig())
        if experiment is not None:  # The settings of its task would require TensorFlow.
            return [setting for setting in settings if not setting.path.startswith("task.")]
        return [setting for setting in settings if _fits_names(setting, dict(named))]
    files = tuple(text for name, text in given if name == "config_file")
    flags = tuple((f"--{path}", path, text) for path, text in named)
    request = Request(experiment=experiment, config_files=files, flags=flags, imports=imports)
    return declared_settings(resolve(request).config)


def _fits_names(setting: Setting, named: dict[str, str]) -> bool:
    """Returns whether a setting exists with the names that are set on the line."""
    return all(named.get(path, names[0]) in names for path, names in setting.choices.items())


def _remove_quotes(word: str) -> str:
    """Returns a word as the shell would pass it, also if a quote is still open."""
    for closing in ("", "'", '"'):
        try:
            parts = shlex.split(word + closing)
        except ValueError:
            continue
        return " ".join(parts) if word.strip() else ""
    return word


COMMAND = Command("completion", _DESCRIPTION, _add_flags, ["bash"], main, _parse)
