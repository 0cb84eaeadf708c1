"""From everything the user said to one frozen config; the last word wins.

Order: defaults < the experiment < each `--config_file` < each `--gin_file` <
each `--params_override` < each `--gin_param` < flags with a setting of their own.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path

from orbit_runner.config.experiment import ExperimentConfig
from orbit_runner.config.gin_source import GinLayer, load_gin, macro_statements, tree_of
from orbit_runner.config.locate import find_experiment, find_file
from orbit_runner.config.origins import Origin
from orbit_runner.config.overrides import load_override, value_at
from orbit_runner.config.problems import ConfigError, Problem
from orbit_runner.config.raw import Leaf, Section, merge, section_of
from orbit_runner.config.typed import Builder
from orbit_runner.config.yaml_source import load_file


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What the user said, in the order of precedence.

    Attributes:
        experiment: A name, a file, or the folder of a run.
        config_files: YAML or JSON files.
        gin_files: Gin files.
        params_overrides: Assignments, YAML text, or files.
        gin_params: Gin bindings.
        flags: (flag, dotted path, text) of flags with a setting of their own.
        imports: Modules to import first.
    """

    experiment: str | None = None
    config_files: tuple[str, ...] = ()
    gin_files: tuple[str, ...] = ()
    params_overrides: tuple[str, ...] = ()
    gin_params: tuple[str, ...] = ()
    flags: tuple[tuple[str, str, str], ...] = ()
    imports: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A config and where its values came from."""

    config: ExperimentConfig
    origins: dict[str, Origin]

    def origin(self, path: str) -> Origin | None:
        """Returns where a setting came from, or the section that would hold it; None: default."""
        while path and path not in self.origins:
            path = path.rpartition(".")[0]
        return self.origins.get(path)


def resolve(request: Request) -> Resolved:
    """Makes the config that a request asks for.

    Args:
        request: What the user said.

    Returns:
        The frozen config and the origin of each value.

    Raises:
        ConfigError: Something in it is wrong; all problems of all layers are named.
    """
    layers = _Layers()
    _read(request, layers)
    root = layers.merged(request.imports)
    if not layers.problems:
        layers.attempt(lambda: _import_all(root))
    if layers.problems and not root.children:
        raise ConfigError(layers.problems)
    builder = Builder()
    config = builder.build(ExperimentConfig(), root)
    builder.check(config)
    _require_task(config, builder)
    if layers.problems or builder.problems:
        raise ConfigError([*layers.problems, *builder.problems])
    assert isinstance(config, ExperimentConfig)
    return Resolved(config, builder.origins)


def _read(request: Request, layers: _Layers) -> None:
    if request.experiment is not None:
        layers.experiment(request.experiment)
    for name in request.config_files:
        layers.file(name)
    for name in request.gin_files:
        layers.file(name, as_gin=True)
    for index, text in enumerate(request.params_overrides):
        label = f"--params_override[{index}]"
        layers.tree(lambda layer, text=text, label=label: load_override(text, label, layer))
    for index, text in enumerate(request.gin_params):
        layers.gin_text(text, f"--gin_param[{index}]")
    for flag, path, text in request.flags:
        where = tuple(path.split("."))
        layers.tree(lambda n, where=where, text=text, flag=flag: value_at(where, text, flag, n))


class _Layers:
    """Reads one layer after the other; a layer that fails is named, and the next one read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._sections: list[Section | GinLayer] = []

    def attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except ConfigError as error:
            self.problems.extend(error.problems)

    def tree(self, load: Callable[[int], Section]) -> None:
        rank = len(self._sections) + 1
        self.attempt(lambda: self._sections.append(load(rank)))

    def experiment(self, name: str) -> None:
        def read() -> None:
            path = find_experiment(name)
            stem = path.parent.name if path.name == "config.yaml" else path.stem
            self._sections.append(section_of({"name": stem}, Origin("--experiment", None, 0)))
            self._open(path, _label(path, name))

        self.attempt(read)

    def file(self, name: str, *, as_gin: bool = False) -> None:
        self.attempt(lambda: self._open(find_file(name), name, as_gin=as_gin))

    def _open(self, path: Path, label: str, *, as_gin: bool = False) -> None:
        if as_gin or path.suffix == ".gin":
            self.gin_text(path.read_text(encoding="utf-8"), label, path)
        else:
            self.tree(lambda rank: load_file(path, label, rank))

    def gin_text(self, text: str, label: str, path: Path | None = None) -> None:
        rank = len(self._sections) + 1

        def read() -> None:
            self._sections.append(load_gin(text, label, rank, find=find_file, path=path))

        self.attempt(read)

    def merged(self, imports: tuple[str, ...]) -> Section:
        gin = [layer for layer in self._sections if isinstance(layer, GinLayer)]
        macros = {name: value for layer in gin for name, value in layer.macros.items()}
        root, statements = Section(Origin("default")), list[str]()
        for layer in self._sections:
            if isinstance(layer, Section):
                merge(root, layer)
                continue
            statements += layer.statements
            self.attempt(lambda layer=layer: merge(root, tree_of(layer, macros)))
        if statements:
            _extend(root, "gin_bindings", [*macro_statements(macros), *statements], "gin")
        _extend(root, "imports", list(imports), "--import")
        return root


def _extend(root: Section, name: str, values: list[str], label: str) -> None:
    there = root.children.get(name)
    before = list(there.value) if isinstance(there, Leaf) and isinstance(there.value, list) else []
    if values:
        merged = [*before, *(value for value in values if value not in before)]
        root.children[name] = Leaf(merged, Origin(label))


def _label(path: Path, name: str) -> str:
    if name == str(path):
        return name
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return f"{path.parent.name}/{path.name}"


def _import_all(root: Section) -> None:
    node = root.children.get("imports")
    if not isinstance(node, Leaf) or not isinstance(node.value, list):
        return
    for module in node.value:
        try:
            importlib.import_module(str(module))
        except Exception as error:
            message = f"cannot import {module!r}: {type(error).__name__}: {error}"
            raise ConfigError([Problem("imports", message, node.origin)]) from None


def _require_task(config: object, builder: Builder) -> None:
    if not any(path == "task.name" or path == "task" for path in builder.origins):
        message = "no task is declared; give --experiment=NAME (see `runner list`) or task.name"
        builder.problems.append(Problem("task.name", message))
