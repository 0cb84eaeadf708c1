"""Reads config files with the files that they are based on: `base: digits`.

The bases of a file are layers of their own, in order, each below the file itself.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.config.errors import ConfigError, Origin, Problem
from orbit_runner.config.parsing.conversion import format_value
from orbit_runner.config.parsing.gin_files import GinLayer, load_gin
from orbit_runner.config.parsing.search_path import (
    SUFFIXES,
    experiment_files,
    find_experiment,
    find_file,
    fragment_files,
    read_text,
    shipped_root,
)
from orbit_runner.config.parsing.tree import Leaf, Section, set_layer
from orbit_runner.config.parsing.yaml_files import load_file
from orbit_runner.errors import shorten, unknown_name_message
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.storage.paths import is_remote

BASE = "base"
_EXPECTED = "expected a file, the name of an experiment or fragment, or a list of them"


def load_with_bases(path: Path, label: str, layer: int) -> list[Section | GinLayer]:
    """Returns the layers of a YAML or JSON file and of its bases, the lowest first.

    `layer` is the precedence of the lowest. Raises ConfigError with the problems of all files.
    """
    reader = _Reader(layer)
    reader.read(path, label, ())
    if reader.problems:
        raise ConfigError(reader.problems)
    return reader.layers


def load_description(path: Path) -> str:
    """Returns the `description` of an experiment or fragment, or "" if it has none.

    Raises ConfigError if the file or one of its bases cannot be read.
    """
    description = ""
    for layer in load_with_bases(path, str(path), 1):
        if isinstance(layer, GinLayer):
            values = [
                binding.value for binding in layer.bindings if binding.path == ("description",)
            ]
        else:
            node = layer.children.get("description")
            values = [node.value] if isinstance(node, Leaf) else []
        description = str(values[-1] or "") if values else description
    return description


class _Reader:
    """Reads a file after its bases, and collects the problems of all of them."""

    def __init__(self, layer: int) -> None:
        self.problems: list[Problem] = []
        self.layers: list[Section | GinLayer] = []
        self._first = layer

    def read(self, path: Path, label: str, within: tuple[tuple[Path, str], ...]) -> None:
        """Reads a file. `within` has the files that are based on it, each with its label."""
        try:
            if path.suffix == ".gin":
                text = read_text(path, label)
                self.layers.append(load_gin(text, label, self._next, path))
                return
            section = load_file(path, label, self._next)
        except ConfigError as error:
            self._collect_problems(error, None)
            return
        node = section.children.pop(BASE, None)
        if node is not None:
            self._read_bases(node, (*within, (path, label)))
        set_layer(section, self._next)
        self.layers.append(section)

    @property
    def _next(self) -> int:
        return self._first + len(self.layers)

    def _read_bases(self, node: Leaf | Section, within: tuple[tuple[Path, str], ...]) -> None:
        value = node.value if isinstance(node, Leaf) else {}
        for name in value if isinstance(value, (list, tuple)) else [value]:
            try:
                base = _require_name(name)
                path = _find_base(base, within[-1][0].parent)
                chain = (*within, (path, label_of(base, path)))
                _check_chain(chain)
                self.read(*chain[-1], within)
            except ConfigError as error:
                self._collect_problems(error, node.origin)

    def _collect_problems(self, error: ConfigError, origin: Origin | None) -> None:
        """Adds the problems of an error, with the origin of `base` for those without an origin."""
        for problem in error.problems:
            at = problem.origin or origin
            path = problem.path if problem.origin else BASE
            # Without layers, a problem of a file that is read twice is reported once.
            at = dataclasses.replace(at, layer=0) if at is not None else None
            self.problems.append(Problem(path, problem.message, at, code=problem.code))


def _check_chain(chain: Sequence[tuple[Path, str]]) -> None:
    # Compare resolved paths, because `sub/../a.yaml` is `a.yaml`.
    resolved = [path.resolve() for path, _ in chain]
    if resolved[-1] in resolved[:-1]:
        shown = shorten(" → ".join(label for _, label in chain), 600)
        raise _base_error(f"the bases form a cycle: {shown}")


def _base_error(message: str) -> ConfigError:
    return ConfigError.of(BASE, message, code="bad-reference")


def _require_name(name: object) -> str:
    """Returns the name of a base. Raises ConfigError if it is not a valid name."""
    if not isinstance(name, str) or not name:
        raise _base_error(f"got {format_value(name)}, {_EXPECTED}")
    if name.startswith("official/"):
        written = shorten(name.removeprefix("official/"))
        raise _base_error(
            f"got {format_value(name)}; for Model Garden's, write `official: {written}`"
        )
    return os.path.expanduser(name)


def _find_base(name: str, directory: Path) -> Path:
    """Returns the file of a base that a file in `directory` names."""
    if Path(name).suffix in SUFFIXES:
        return find_file(name, directory)
    if is_remote(name):
        return find_experiment(name)
    experiments = experiment_files()
    if name in experiments:
        return experiments[name]
    fragments = {str(Path(path).with_suffix("")): file for path, file in fragment_files().items()}
    for known in (name, f"configs/{name}"):
        if known in fragments:
            return fragments[known]
    for run in (directory / name, Path(name)):
        if os.path.isfile(RunDirectory(run).config):
            return RunDirectory(run).config
    names = [*experiments, *(path.removeprefix("configs/") for path in fragments)]
    raise _base_error(unknown_name_message("base", name, names))


def label_of(name: str, path: Path) -> str:
    """Returns what messages call a file that `name` means: its URL, or a path that is short."""
    if is_remote(name):
        return name
    path = Path(os.path.abspath(path))  # without `..`
    for root in (Path.cwd(), shipped_root()):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return f"{path.parent.name}/{path.name}"
