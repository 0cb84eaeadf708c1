"""Reads settings from the `config.yaml` of runs, fast and without building a config.

The file was written by `config.serialize.to_yaml`: one setting per line, indented by two spaces per
section. A file that was changed by hand may not be readable this way.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import open_file

# The parser in C is ten times as fast, but PyYAML may have been built without it.
_Loader: type[yaml.CSafeLoader] | type[yaml.SafeLoader] = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)
# PyYAML raises others than its own for values such as `!!int ""`.
_ERRORS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
# The limits of config files.
_MOST_BYTES = 2**20
_MOST_VALUES = 20_000


def read_settings(run: Path) -> dict[str, object]:
    """Returns all settings of a run by dotted path; empty if the file cannot be read."""
    return parse_settings(_read_text(run))


def parse_settings(text: str) -> dict[str, object]:
    """Returns the settings in the text of a `config.yaml`; empty if it cannot be read."""
    try:
        content = yaml.load(text, Loader=_Loader)
        # Aliases, which a run never writes, could expand it to more than the memory.
        values = _flatten(content, "") if isinstance(content, dict) else ()
        return dict(itertools.islice(values, _MOST_VALUES))
    except _ERRORS:
        return {}


def read_setting(run: Path, path: str) -> object:
    """Returns one setting of a run, or None. Faster than `read_settings`, for many runs."""
    text = f"\n{_read_text(run)}"
    start, end = 0, len(text)
    for depth, name in enumerate(path.split(".")):
        indent = "  " * depth
        at = text.find(f"\n{indent}{name}:", start, end)
        if at < 0:
            return None
        start = at + len(indent) + len(name) + 2
        after = re.compile(rf"\n {{0,{len(indent)}}}[^\s#]").search(text, start, end)
        end = after.start() if after else end
    try:
        return yaml.load(text[start:end], Loader=_Loader)
    except _ERRORS:
        return None


def _read_text(run: Path) -> str:
    try:
        with open_file(RunDirectory(run).config) as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _flatten(values: Mapping[object, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{path}.")
        else:
            yield path, value
