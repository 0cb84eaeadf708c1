"""From everything the user said to one frozen config; the last word wins.

Order: defaults < the experiment < each `--config_file` < each `--gin_file` <
each `--params_override` < each `--gin_param` < flags with a setting of their own.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.parsing.builder import Builder
from orbit_runner.config.parsing.gin_checks import gin_problems
from orbit_runner.config.parsing.gin_files import (
    GinLayer,
    load_gin,
    macro_statements,
    tree_of,
    unused_macros,
)
from orbit_runner.config.parsing.overrides import load_override, value_at
from orbit_runner.config.parsing.search_path import find_experiment, find_file, read_text
from orbit_runner.config.parsing.tree import Leaf, Section, merge, section_of
from orbit_runner.config.parsing.yaml_files import load_file
from orbit_runner.config.provenance import Origin
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import entries
from orbit_runner.registry import PROVIDERS
from orbit_runner.run_directory.paths import CONFIG
from orbit_runner.storage.setting_paths import path_problems

# Before the name of an experiment that Model Garden registers.
OFFICIAL = "official/"
_IMPORT = re.compile(r"(import|from)\s")


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
        strict: Whether settings that do nothing are errors in Model Garden's experiments, too.
    """

    experiment: str | None = None
    config_files: tuple[str, ...] = ()
    gin_files: tuple[str, ...] = ()
    params_overrides: tuple[str, ...] = ()
    gin_params: tuple[str, ...] = ()
    flags: tuple[tuple[str, str, str], ...] = ()
    imports: tuple[str, ...] = ()
    strict: bool = False


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A config and where its values came from.

    Attributes:
        config: The config.
        origins: Dotted path to origin, for every value that something set.
        notes: Settings that do nothing, of an experiment of Model Garden.
    """

    config: ExperimentConfig
    origins: dict[str, Origin]
    notes: tuple[Problem, ...] = ()

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
    root = layers.merge(request.imports)
    layers.import_all(root)
    if layers.problems and layers.lacks_names:
        raise ConfigError(layers.problems)
    base, root = layers.base(root)
    builder = Builder(lenient=bool(base.official))
    if layers.problems and layers.lacks_names:
        raise ConfigError(layers.problems)
    builder.origins.update(_origins_of(base))
    config = builder.build(base, root)
    assert isinstance(config, ExperimentConfig)
    if not layers.problems:  # else a layer that cannot be read would be missed as well
        builder.check(config)
        _require_task(builder)
        builder.problems += gin_problems(config, layers.statements)
        _check_paths(builder, config)
    for index, text in enumerate(config.gin_bindings):
        if text in layers.statements:
            builder.origins[f"gin_bindings[{index}]"] = layers.statements[text]
    if request.strict or not base.official:
        builder.problems += builder.notes
    if layers.problems or builder.problems:
        raise ConfigError([*layers.problems, *builder.problems])
    notes = tuple(builder.notes) if base.official else ()
    return Resolved(config, builder.origins, notes)


def load_config(
    experiment: str, *config_files: str, overrides: Mapping[str, Any] | None = None
) -> ExperimentConfig:
    """Loads an experiment.

    Args:
        experiment: A name that `runner list` shows, a file, or a run directory.
        *config_files: YAML, JSON or gin files, each merged over what stands before it.
        overrides: Dotted path to value, merged last.

    Returns:
        The config, frozen.

    Raises:
        ConfigError: Something in it is wrong; the error lists all problems.
    """
    texts = ((path, json.dumps(value)) for path, value in (overrides or {}).items())
    request = Request(
        experiment=experiment,
        config_files=tuple(name for name in config_files if not name.endswith(".gin")),
        gin_files=tuple(name for name in config_files if name.endswith(".gin")),
        flags=tuple((f"overrides[{path!r}]", path, text) for path, text in texts),
    )
    return resolve(request).config


def _read(request: Request, layers: _Layers) -> None:
    if request.experiment is not None:
        layers.experiment(request.experiment)
    for name in request.config_files:
        layers.file(name)
    for name in request.gin_files:
        layers.file(name, as_gin=True)
    for index, text in enumerate(request.params_overrides):
        layers.tree(functools.partial(load_override, text, f"--params_override[{index}]"))
    for index, text in enumerate(request.gin_params):
        layers.gin_text(text, f"--gin_param[{index}]")
    for flag, path, text in request.flags:
        layers.tree(functools.partial(value_at, tuple(path.split(".")), text, flag))


class _Layers:
    """Reads one layer after the other; a layer that fails is named, and the next one read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        # Whether tasks or their names are missing, so that all that is said of them looks wrong.
        self.lacks_names = True
        # Of gin statements, where they were written.
        self.statements: dict[str, Origin] = {}
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
            if name.startswith(OFFICIAL):
                registered = name.removeprefix(OFFICIAL)
                named = {"official": registered, "name": registered.replace("/", "_")}
                self._sections.append(section_of(named, Origin("--experiment", None, 0)))
                return
            path = _find_file(name)
            # Resolved, because the parent of `../config.yaml` has no name.
            stem = path.resolve().parent.name if path.name == CONFIG else path.stem
            self._sections.append(section_of({"name": stem}, Origin("--experiment", None, 0)))
            self._open(path, _label(path, name))

        self.attempt(read)
        self.lacks_names = bool(self.problems)

    def import_all(self, root: Section) -> None:
        node, known = root.children.get("imports"), len(self.problems)
        if isinstance(node, Leaf) and isinstance(node.value, list):
            names, origin = node.value, node.origin
            self.attempt(lambda: import_modules(names, origin))
        self.lacks_names |= len(self.problems) > known

    def base(self, root: Section) -> tuple[ExperimentConfig, Section]:
        """Returns what the tree is laid over: one of Model Garden's experiments, or nothing."""
        node, found = root.children.get("official"), (ExperimentConfig(), root)
        if isinstance(node, Leaf) and isinstance(node.value, str) and node.value:
            name, known = node.value.removeprefix(OFFICIAL), len(self.problems)

            def read() -> None:
                nonlocal found
                # The one part of resolving that needs tensorflow: such a config is made by code.
                base, said = _model_garden().make(name, root)
                merge(said, root)
                found = base, said

            self.attempt(read)
            self.lacks_names |= len(self.problems) > known
        return found

    def file(self, name: str, *, as_gin: bool = False) -> None:
        self.attempt(lambda: self._open(find_file(name), name, as_gin=as_gin))

    def _open(self, path: Path, label: str, *, as_gin: bool = False) -> None:
        if as_gin or path.suffix == ".gin":
            self.gin_text(read_text(path, label), label, path)
        else:
            self.tree(lambda rank: load_file(path, label, rank))

    def gin_text(self, text: str, label: str, path: Path | None = None) -> None:
        rank = len(self._sections) + 1

        def read() -> None:
            self._sections.append(load_gin(text, label, rank, find=find_file, path=path))

        self.attempt(read)

    def merge(self, imports: tuple[str, ...]) -> Section:
        gin = [layer for layer in self._sections if isinstance(layer, GinLayer)]
        macros = {name: value for layer in gin for name, value in layer.macros.items()}
        root, statements = Section(Origin("default")), dict[str, Origin]()
        for layer in self._sections:
            if isinstance(layer, Section):
                merge(root, layer)
                continue
            statements |= layer.statements
            self.attempt(functools.partial(_merge_gin, root, layer, macros))
        bound = root.children.get("gin_bindings")
        texts = [*statements, str(bound.value if isinstance(bound, Leaf) else "")]
        self.problems += unused_macros(gin, texts)
        if statements or "gin_bindings" in root.children:
            self.statements = macro_statements(macros) | statements
            _extend(root, "gin_bindings", [*self.statements], "gin")
        _extend(root, "imports", list(imports), "--import")
        return root


def _model_garden() -> Any:
    return PROVIDERS.get(OFFICIAL.rstrip("/")).load()


def _find_file(name: str) -> Path:
    """Finds an experiment's file, or says that Model Garden has one of that name."""
    try:
        return find_experiment(name)
    except ConfigError:
        if name not in _model_garden().names():
            raise
        message = f"unknown experiment {name!r}; Model Garden's is --experiment={OFFICIAL}{name}"
        raise ConfigError([Problem("--experiment", message)]) from None


def _merge_gin(root: Section, layer: GinLayer, macros: dict[str, tuple[Any, Origin]]) -> None:
    merge(root, tree_of(layer, macros))


def _extend(root: Section, name: str, values: list[str], label: str) -> None:
    there = root.children.get(name, Leaf([], Origin(label)))
    before = there.value if isinstance(there, Leaf) else None
    # Anything else than a list of texts stays, to be told of where types are checked.
    if values and isinstance(before, list) and all(isinstance(text, str) for text in before):
        root.children[name] = Leaf(_in_order([*before, *values]), Origin(label))


def _in_order(statements: list[str]) -> list[str]:
    """Returns gin imports before bindings, and of a binding said twice the last, which holds."""
    imports = [text for text in statements if _IMPORT.match(text)]
    others = [text for text in statements if not _IMPORT.match(text)]
    return [*dict.fromkeys(imports), *reversed(dict.fromkeys(reversed(others)))]


def _label(path: Path, name: str) -> str:
    if name == str(path):
        return name
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return f"{path.parent.name}/{path.name}"


def import_modules(names: Sequence[str], origin: Origin) -> None:
    """Imports modules, which register tasks.

    Args:
        names: The modules.
        origin: Who asks for them.

    Raises:
        ConfigError: One of them cannot be imported.
    """
    for name in names:
        try:
            importlib.import_module(str(name))
        except (Exception, SystemExit) as error:  # A script ends its process when it is imported.
            message = f"cannot import {name!r}: {type(error).__name__}: {error}"
            raise ConfigError([Problem("imports", message, origin)]) from None


def _origins_of(base: ExperimentConfig) -> dict[str, Origin]:
    """Returns where the values come from that a config begins with."""
    if not base.official:
        return {}
    origin = Origin(f"{OFFICIAL}{base.official}")
    return {path: origin for path, _ in entries(base) if path.startswith("task")}


def _require_task(builder: Builder) -> None:
    if not any(path == "task.name" or path == "task" for path in builder.origins):
        message = "no task is declared; give --experiment=NAME (see `runner list`) or task.name"
        builder.problems.append(Problem("task.name", message))


def _check_paths(builder: Builder, config: Any) -> None:
    for path, message in path_problems(config):
        origin = builder.origins.get(path.partition("[")[0])
        builder.problems.append(Problem(path, message, origin))
