"""Values of flags: which are paths and of which kind, and which override settings.

A parser declares a path as the `type` of a flag: `add_argument("run", type=RUN)`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.cli.flags.rows import flag
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import own_file_reason
from orbit_runner.storage.paths import COPY_RUN, is_remote, not_utf8_reason, path_problem
from orbit_runner.utils.files import write_output


@dataclasses.dataclass(frozen=True)
class PathValue:
    """A path, as the `type` of a flag or an argument.

    Attributes:
        metavar: What `--help` shows, unless the declaration has a metavar of its own.
        kind: `input`; `directory`, which may not exist yet; `output file` or `output directory`, in
            which the command writes; or `any URL`.
        remote: Whether it may be the URL of an object store.
        use: What to use instead of such a URL, for messages.
    """

    metavar: str
    kind: str = "input"
    remote: bool = False
    use: str = "use a local path"

    def __call__(self, text: str) -> str:
        """Returns the text. `resolve_values` changes paths, because errors name the flag."""
        return text

    def resolve(self, text: str, name: str) -> str:
        """Returns a path without `~`, which the shell does not expand in `--model_dir=~/a`.

        `name` is that of the flag. Raises `RunnerError` if the URL is not supported or an output
        file cannot be written: before the work begins whose result it is for.
        """
        path = os.path.expanduser(text)
        problem = f"got {text!r}, which names no user of this machine" if path[:1] == "~" else ""
        if problem := problem or self._problem(path):
            raise RunnerError(problem, path=name, code="bad-path")
        return path

    def _problem(self, text: str) -> str:
        if self.kind == "any URL":
            return ""
        if not text:
            is_output = self.kind.startswith("output")
            return "is empty; specify a path, or omit it" if is_output else ""
        if problem := path_problem(text, remote=self.remote, use=self.use):
            return problem
        if self.kind == "directory":
            return _directory_problem(text)
        return _output_problem(text, self.kind) if self.kind.startswith("output") else ""


@dataclasses.dataclass(frozen=True)
class Count:
    """An integer within limits, as the `type` of a flag; `most` is None for no upper limit."""

    least: int = 1
    most: int | None = None
    __name__ = "int"  # For the message of argparse about another text.

    def __call__(self, text: str) -> int:
        """Returns the number. `resolve_values` checks the limits, because errors name the flag."""
        return int(text)

    def resolve(self, value: int, name: str) -> int:
        """Returns the number. Raises `RunnerError` if it is outside of the limits."""
        if value < self.least or (self.most is not None and value > self.most):
            allowed = f"at least {self.least}"
            if self.most is not None:
                allowed = f"{self.least} to {self.most:,}"
            raise RunnerError(f"got {value}, allowed: {allowed}", path=name, code="out-of-range")
        return value


def resolve_values(arguments: Iterable[argparse.Action], flags: argparse.Namespace) -> None:
    """Replaces paths and counts by what their types return; changes `flags` in place.

    Raises `RunnerError` if a path cannot be used, or a number is outside of its limits.
    """
    for action in arguments:
        given = getattr(flags, action.dest, None)
        if not isinstance(action.type, (PathValue, Count)) or given is None:
            continue
        name = next(iter(action.option_strings), str(action.metavar))
        is_list = isinstance(given, list)
        values = [action.type.resolve(value, name) for value in (given if is_list else [given])]
        setattr(flags, action.dest, values if is_list else values[0])


# Stands for all flags of the form `--trainer.train_steps=5`, which argparse does not know.
SETTING_FLAG = "--SECTION.NAME"


class OverrideAction(argparse.Action):
    """Adds what a flag sets to `overrides`: tuples of flag, dotted path and text.

    The path of a flag that may set several settings, such as `--params_override`, is "".
    """

    def __init__(self, *names: Any, settings: Sequence[str] = ("",), **keywords: Any) -> None:
        super().__init__(*names, **keywords | {"default": argparse.SUPPRESS})
        self._settings = settings

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Adds what the flag sets; argparse calls this for each one, in their order."""
        name = self.option_strings[0]
        if isinstance(self.type, PathValue):
            values = self.type.resolve(values, name)
        if name == SETTING_FLAG:
            path, _, text = values.partition("=")
            namespace.overrides.append((f"--{path}", path, text))
        else:
            namespace.overrides += [(name, path, values) for path in self._settings]


def _output_problem(text: str, kind: str) -> str:
    if kind == "output file":
        if os.path.isdir(text):
            return f"{text} is a directory, expected a file"
        if os.path.exists(text) and not os.path.isfile(text):
            return ""  # A device or a pipe.
        text = os.path.realpath(text)
    # `os.path`, because methods of `Path` raise an error if the name is too long.
    elif problem := _directory_problem(text):
        return problem
    # Missing directories are created.
    parent = next(
        ancestor for ancestor in Path(text).absolute().parents if os.path.lexists(ancestor)
    )
    if not os.path.isdir(parent):
        return f"cannot write {text}: {parent} is not a directory"
    if not os.access(parent, os.W_OK):
        return f"cannot write {text}: {parent} is not writable"
    return own_file_reason(text)


def _directory_problem(text: str) -> str:
    if is_remote(text) or not os.path.lexists(text) or os.path.isdir(text):
        return not_utf8_reason(text)
    kind = "a file" if os.path.isfile(text) else "no directory"
    return f"{text} is {kind}, expected a directory"


# The paths of several commands. Others are declared by the command that has them.
RUN = PathValue("RUN", use=COPY_RUN)
MODEL_DIR = PathValue("DIR", "directory")
EXPERIMENT = PathValue("NAME", remote=True)
LOCAL_EXPERIMENT = PathValue("RUN|EXPERIMENT")
CONFIG_FILE = PathValue("FILE", remote=True)
SWEEP_FILE = PathValue("FILE")
DIRECTORY = PathValue("DIR")
DATASET = PathValue("DATA")
OUTPUT_FILE = PathValue("FILE", "output file")
OUTPUT_DIRECTORY = PathValue("DIR", "output directory")
SETTINGS_TEXT = PathValue("TEXT", remote=True)
RUN_DIRECTORY = flag("run", "run directory", type=RUN)
RUN_DIRECTORIES = flag(
    "directories",
    "run directory, or directory that contains runs (default: runs)",
    type=DIRECTORY,
    nargs="*",
)


def write_flag_output(flag: str, path: str, content: str | bytes) -> None:
    """Writes the file that a flag names. Raises RunnerError if it cannot be written."""
    try:
        write_output(Path(path), content)
    except OSError as error:
        raise RunnerError(
            f"cannot write {path}: {error.strerror or error}", path=flag, code="not-writable"
        ) from error
