"""Resolves an experiment, config files and flags to one frozen config.

Later sources override earlier ones: defaults, the experiment, each `--config_file`, each
`--gin_file`, and the flags that set something, in the order of the command line.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.config.errors import ConfigError, Origin, Problem, nearest_origin, not_set
from orbit_runner.config.parsing.bases import label_of, load_with_bases
from orbit_runner.config.parsing.builder import Builder
from orbit_runner.config.parsing.gin_files import (
    GinLayer,
    load_gin,
    macro_statements,
    tree_of,
    unused_macros,
)
from orbit_runner.config.parsing.overrides import load_override, load_setting
from orbit_runner.config.parsing.search_path import find_experiment, find_file, read_text
from orbit_runner.config.parsing.tree import (
    Leaf,
    Section,
    merge,
    section_of,
)
from orbit_runner.config.parsing.value_checks import path_problems
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import flat_settings
from orbit_runner.config.walk import walk
from orbit_runner.run_directory.paths import CONFIG
from orbit_runner.storage.paths import is_remote

# The prefix of experiments that Model Garden registers.
OFFICIAL = "official/"
_IMPORT = re.compile(r"(import|from)\s")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The sources of a config, in the order of precedence."""

    experiment: str | None = None  # A name, a file, or a run directory.
    config_files: tuple[str, ...] = ()  # YAML or JSON files.
    gin_files: tuple[str, ...] = ()
    params_overrides: tuple[str, ...] = ()  # Assignments, YAML text, or files.
    gin_params: tuple[str, ...] = ()
    # (flag, dotted path, YAML text), or (`--params_override` or `--gin_param`, "", text)
    flags: tuple[tuple[str, str, str], ...] = ()
    imports: tuple[str, ...] = ()  # Modules to import first.


@dataclasses.dataclass(frozen=True)
class ResolvedConfig:
    """A config and the origins of its values."""

    config: ExperimentConfig
    origins: dict[str, Origin]  # By dotted path, for values that were set.
    notes: tuple[Problem, ...] = ()  # Settings without effect in a Model Garden experiment.
    experiment_layer: int = 0  # The layer of the experiment's own file.

    def origin(self, path: str) -> Origin | None:
        """Returns the origin of a setting or of its nearest section that was set, or None."""
        return nearest_origin(self.origins, path)

    def locate(self, problems: Iterable[Problem | tuple[str, str]]) -> list[Problem]:
        """Returns problems with the places where their settings were set."""
        return [problem.at(self.origin(problem.path)) for problem in map(Problem.of, problems)]

    def changes(self) -> dict[str, object]:
        """Returns the settings that other files and flags set over the experiment, by dotted path.

        Without an experiment, these are all settings that were set.
        """
        changes = {
            path: value
            for path, value in flat_settings(self.config).items()
            if self._is_set_over_experiment(path)
        }
        bindings = self.config.gin_bindings
        over = [
            text
            for i, text in enumerate(bindings)
            if self._is_set_over_experiment(f"gin_bindings[{i}]")
        ]
        return changes | ({"gin_bindings": over} if over else {})

    def _is_set_over_experiment(self, path: str) -> bool:
        origin = self.origins.get(path)
        return origin is not None and origin.layer > self.experiment_layer


def resolve(request: Request) -> ResolvedConfig:
    """Returns the resolved config. Raises ConfigError with the problems of all layers."""
    layers = _Layers()
    _read_layers(request, layers)
    root = layers.merge(request.imports)
    layers.import_all(root)
    if layers.problems and layers.may_lack_tasks:
        raise ConfigError(layers.problems)
    base, root = layers.load_base(root)
    if layers.problems and layers.may_lack_tasks:
        raise ConfigError(layers.problems)
    builder = Builder(lenient=bool(base.official))
    if base.official:
        garden = Origin(f"{OFFICIAL}{base.official}")
        paths = (node.path for node in walk(base))
        builder.origins |= {path: garden for path in paths if path.startswith("task")}
    config = builder.build(base, root)
    assert isinstance(config, ExperimentConfig)
    # If a layer could not be read, its settings would be reported as missing as well.
    if not layers.problems:
        builder.check(config)
        if not {"task", "task.name"} & {*builder.origins}:
            message = "no task is set; pass --experiment=NAME (see `runner list`) or set task.name"
            builder.problems.append(not_set("task.name", message))
        for path, message in path_problems(config):
            origin = builder.origins.get(path.partition("[")[0])
            builder.problems.append(Problem(path, message, origin, "bad-path"))
    for index, text in enumerate(config.gin_bindings):
        if text in layers.statements:
            builder.origins[f"gin_bindings[{index}]"] = layers.statements[text]
    if not base.official:
        builder.problems += builder.notes
    if layers.problems or builder.problems:
        raise ConfigError([*layers.problems, *builder.problems])
    notes = tuple(builder.notes) if base.official else ()
    return ResolvedConfig(config, builder.origins, notes, layers.experiment_layer)


def load_config(
    experiment: str, *config_files: str, overrides: Mapping[str, object] | None = None
) -> ExperimentConfig:
    """Loads an experiment.

    Args:
        experiment: A name that `runner list` shows, a file, or a run directory.
        *config_files: YAML, JSON or gin files. Each is merged over the previous ones, and gin files
            after all others.
        overrides: Values by dotted path, merged after all files.

    Returns:
        The frozen config.

    Raises:
        ConfigError: If the config is invalid. The error lists all problems.
    """
    texts = ((path, json.dumps(value)) for path, value in (overrides or {}).items())
    request = Request(
        experiment=experiment,
        config_files=tuple(name for name in config_files if not name.endswith(".gin")),
        gin_files=tuple(name for name in config_files if name.endswith(".gin")),
        flags=tuple((f"overrides[{path!r}]", path, text) for path, text in texts),
    )
    return resolve(request).config


def _read_layers(request: Request, layers: _Layers) -> None:
    if request.experiment is not None:
        layers.add_experiment(request.experiment)
    for name in request.config_files:
        layers.add_file(name)
    for name in request.gin_files:
        layers.add_file(name, as_gin=True)
    overrides = [("--params_override", "", text) for text in request.params_overrides]
    overrides += [("--gin_param", "", text) for text in request.gin_params]
    counts = collections.Counter[str]()
    for flag, path, text in (*overrides, *request.flags):
        label = f"{flag}[{counts[flag]}]"
        counts[flag] += 1
        if path:
            layers.add_tree(functools.partial(load_setting, tuple(path.split(".")), text, flag))
        elif flag == "--gin_param":
            layers.add_gin_text(text, label)
        else:
            layers.add_tree(functools.partial(load_override, text, label))


class _Layers:
    """Reads layers one by one. Collects the problems of a layer and continues with the next."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        # Whether tasks may not be registered, in which case further problems would be misleading.
        self.may_lack_tasks = True
        self.experiment_layer = 0
        # The origin of each gin statement.
        self.statements: dict[str, Origin] = {}
        self._sections: list[Section | GinLayer] = []

    @contextlib.contextmanager
    def _collected_problems_scope(self) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            self.problems.extend(error.problems)

    @property
    def _rank(self) -> int:
        return len(self._sections) + 1

    def add_tree(self, load: Callable[[int], Section]) -> None:
        with self._collected_problems_scope():
            self._sections.append(load(self._rank))

    def add_experiment(self, name: str) -> None:
        origin = Origin("--experiment", None, 0)
        with self._collected_problems_scope():
            if name.startswith(OFFICIAL):
                registered = name.removeprefix(OFFICIAL)
                named = {"official": registered, "name": registered.replace("/", "_")}
                self._sections.append(section_of(named, origin))
            else:
                path = _find_file(name)
                # Resolve the path, because the parent of `../config.yaml` has no name.
                stem = path.resolve().parent.name if path.name == CONFIG else path.stem
                self._sections.append(section_of({"name": stem}, origin))
                is_file = Path(name).name == path.name and not is_remote(name)
                label = str(Path(name)) if is_file else label_of(name, path)
                self._add_path(path, label)
        self.experiment_layer = len(self._sections)
        self.may_lack_tasks = bool(self.problems)

    def import_all(self, root: Section) -> None:
        known = len(self.problems)
        node = root.children.get("imports")
        if isinstance(node, Leaf) and isinstance(node.value, (list, tuple)):
            with self._collected_problems_scope():
                import_modules(node.value, node.origin)
        self.may_lack_tasks |= len(self.problems) > known

    def load_base(self, root: Section) -> tuple[ExperimentConfig, Section]:
        """Returns the base config, of Model Garden or empty, and the tree to merge over it."""
        node = root.children.get("official")
        if not isinstance(node, Leaf) or not isinstance(node.value, str) or not node.value:
            return ExperimentConfig(), root
        with self._collected_problems_scope():
            name = node.value.removeprefix(OFFICIAL)
            # Only this step imports TensorFlow, because code creates Model Garden's configs.
            base, tree = _model_garden().registered_experiment(name, root)
            merge(tree, root)
            return base, tree
        self.may_lack_tasks = True
        return ExperimentConfig(), root

    def add_file(self, name: str, *, as_gin: bool = False) -> None:
        with self._collected_problems_scope():
            self._add_path(find_file(name), name, as_gin=as_gin)

    def _add_path(self, path: Path, label: str, *, as_gin: bool = False) -> None:
        if as_gin or path.suffix == ".gin":
            self.add_gin_text(read_text(path, label), label, path)
        else:
            with self._collected_problems_scope():
                self._sections += load_with_bases(path, label, self._rank)

    def add_gin_text(self, text: str, label: str, path: Path | None = None) -> None:
        with self._collected_problems_scope():
            self._sections.append(load_gin(text, label, self._rank, path))

    def merge(self, imports: tuple[str, ...]) -> Section:
        gin = [layer for layer in self._sections if isinstance(layer, GinLayer)]
        macros = {name: value for layer in gin for name, value in layer.macros.items()}
        root = Section(Origin("default"))
        statements = dict[str, Origin]()

        for layer in self._sections:
            if isinstance(layer, Section):
                merge(root, layer)
                continue
            statements |= layer.statements
            with self._collected_problems_scope():
                merge(root, tree_of(layer, macros))
        bound = root.children.get("gin_bindings")
        texts = [*statements, str(bound.value if isinstance(bound, Leaf) else "")]
        self.problems += unused_macros(gin, texts)
        if statements or "gin_bindings" in root.children:
            self.statements = macro_statements(macros) | statements
            _extend_list(root, "gin_bindings", [*self.statements], "gin")
        _extend_list(root, "imports", list(imports), "--import")
        return root


def _model_garden() -> Any:
    # By name, because its layer is above this one.
    return importlib.import_module("orbit_runner.model_garden.loading")


def _find_file(name: str) -> Path:
    """Returns an experiment's file, or suggests Model Garden's experiment of that name."""
    try:
        return find_experiment(name)
    except ConfigError:
        if name not in _model_garden().catalogue.experiments():
            raise
        message = (
            f"unknown experiment {name!r}; for Model Garden's, use --experiment={OFFICIAL}{name}"
        )
        raise ConfigError.of("--experiment", message, code="missing-file") from None


def _extend_list(root: Section, name: str, values: list[str], label: str) -> None:
    existing = root.children.get(name, Leaf([], Origin(label)))
    before = existing.value if isinstance(existing, Leaf) else None
    # Any other value is kept and reported when types are checked.
    if (
        values
        and isinstance(before, (list, tuple))
        and all(isinstance(text, str) for text in before)
    ):
        root.children[name] = Leaf(_order_statements([*before, *values]), Origin(label))


def _order_statements(statements: list[str]) -> list[str]:
    """Returns imports before bindings. If a statement occurs twice, the last one is kept."""
    imports = [text for text in statements if _IMPORT.match(text)]
    bindings = [text for text in statements if not _IMPORT.match(text)]
    return [*dict.fromkeys(imports), *reversed(dict.fromkeys(reversed(bindings)))]


def import_modules(names: Sequence[str], origin: Origin) -> None:
    """Imports modules, which may register tasks. Raises ConfigError if an import fails."""
    for name in names:
        try:
            importlib.import_module(str(name))
        except (Exception, SystemExit) as error:  # A script may call `sys.exit`.
            message = f"cannot import {name!r}: {type(error).__name__}: {error}"
            raise ConfigError.of("imports", message, origin, code="import-failed") from None
