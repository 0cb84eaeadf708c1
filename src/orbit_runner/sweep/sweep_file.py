"""Reads a sweep file, and reports all its problems at once, with their lines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.parsing.search_path import read_text
from orbit_runner.config.parsing.tree import Leaf, Section, assignment, leaves, merge
from orbit_runner.config.parsing.yaml_files import load_text
from orbit_runner.config.schema.base import is_finite_number
from orbit_runner.errors import nearest_name_hint, unknown_name_message
from orbit_runner.sweep.search import (
    MAX_GRID,
    Choice,
    Dimension,
    Integers,
    Space,
    Uniform,
    Values,
    grid_settings,
)

MODES = ("max", "min")
# The value of the metric that is the objective of a run: of its last evaluation, or the best one.
VALUES = ("last", "best")
SEARCHES = ("random", "grid", "tpe")
# Searches that learn from results, in batches.
LEARNING = ("tpe",)


@dataclasses.dataclass(frozen=True)
class Halving:
    """Successive halving: at each rung, only the best trials continue.

    Attributes:
        rungs: Steps, ascending.
        keep: The fraction of the trials that continues after each rung.
    """

    rungs: tuple[int, ...]
    keep: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """How the settings of trials are chosen.

    Attributes:
        type: One of `SEARCHES`.
        trials: The number of trials.
        seed: The seed of the draws.
        batch: The number of trials that a search proposes before it needs their results.
        halving: Successive halving; None to train all trials to the end.
    """

    type: str
    trials: int
    seed: int = 0
    batch: int = 4
    halving: Halving | None = None

    @property
    def learns(self) -> bool:
        """Whether the settings of a trial depend on the results of earlier ones."""
        return self.type in LEARNING


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFile:
    """A sweep.

    Attributes:
        label: The name of the file, for messages.
        experiment: The experiment, as `--experiment` takes it.
        config_files: Files that override it, as `--config_file` takes them.
        overrides: Settings that override those files, in sections.
        space: The settings that vary, each after those that it depends on.
        metric: The validation metric of the objective.
        mode: "max" or "min".
        value: One of `VALUES`.
        search: How settings are chosen.
        seeds: `runtime.seed` of each run of a trial, or their number, counted from the seed of the
            experiment.
        description: What the sweep is about.
        values: The content of the file.
        lines: The line of each key of the file, by dotted path, and of each setting of the space
            and of the overrides.
    """

    label: str
    experiment: str
    config_files: tuple[str, ...]
    overrides: Mapping[str, object]
    space: Space
    metric: str
    mode: str
    value: str
    search: Search
    seeds: int | tuple[int, ...]
    description: str
    values: Mapping[str, Any]
    lines: Mapping[str, int | None]

    def place(self, path: str) -> str:
        """Returns the file and line of a key."""
        line = self.lines.get(path)
        return self.label if line is None else f"{self.label}:{line}"


MAX_TRIALS = 100_000
MAX_SEEDS = 1000
_KEYS = {
    "": (
        *("experiment", "config_file", "overrides", "space", "objective", "search", "seeds"),
        "description",
    ),
    "objective": ("metric", "mode", "value"),
    "search": ("type", "trials", "seed", "batch", "halving"),
    "search.halving": ("rungs", "keep"),
}
_EXAMPLE = "a sweep file has the keys experiment, space, objective and search; see docs/sweeps.md"


def read_sweep_file(path: Path, label: str) -> SweepFile:
    """Reads a sweep file. Raises ConfigError with all its problems."""
    return parse_sweep(load_text(read_text(path, label), label, 0), label)


def parse_sweep(root: Section, label: str) -> SweepFile:
    """Returns the sweep that a tree describes. Raises ConfigError with all its problems."""
    parser = _Parser(root, label)
    sweep = parser.sweep()
    if parser.problems:
        raise ConfigError(parser.problems)
    return sweep


class _Problems:
    """Collects problems, each with the place of its node."""

    def __init__(self, root: Section, label: str) -> None:
        self.problems: list[Problem] = []
        self._root = root
        self._label = label

    def _problem(
        self, code: str, path: str, message: str, node: Leaf | Section | None = None
    ) -> None:
        above = path
        while node is None and above:
            node = self._node(above)
            above = above.rpartition(".")[0]
        self.problems.append(Problem(path, message, (node or self._root).origin, code))

    def _node(self, path: str) -> Leaf | Section | None:
        node: Leaf | Section | None = self._root
        for name in path.split("."):
            node = node.children.get(name) if isinstance(node, Section) else None
        return node


class _Parser(_Problems):
    """Builds a `SweepFile` from a tree, and collects problems."""

    def sweep(self) -> SweepFile:
        self._check_keys(self._root, "")
        entries = self._section("space").children
        space = self._space(entries)
        sweep = SweepFile(
            label=self._label,
            experiment=self._text("experiment", required=True),
            config_files=self._texts("config_file"),
            overrides=self._overrides(),
            space=space,
            metric=self._text("objective.metric", required=True),
            mode=self._one_of("objective.mode", MODES, required=True),
            value=self._one_of("objective.value", VALUES) or "last",
            search=self._search(space, entries),
            seeds=self._seeds(),
            description=self._text("description"),
            values={
                **values_of(self._root),
                "space": {path: values_of(node) for path, node in entries.items()},
            },
            lines={
                **_lines(self._root),
                **{path: node.origin.line for path, node in entries.items()},
            },
        )
        if not space and not self.problems:
            self._problem("not-set", "space", f"lists no setting to vary\n{_EXAMPLE}")
        return sweep

    def _space(self, entries: Mapping[str, Leaf | Section]) -> Space:
        """Returns the settings that vary; () after a problem."""
        dimensions: dict[str, Dimension] = {}
        known = len(self.problems)
        for path, node in entries.items():
            parser = _SettingParser(path, node, self._root, self._label)
            values, when = parser.values(), parser.when(dimensions)
            parser.check_path([*entries][: [*entries].index(path)])
            self.problems += parser.problems
            if values is not None:
                dimensions[path] = Dimension(path, values, when)
        return () if len(self.problems) > known else tuple(dimensions.values())

    def _overrides(self) -> dict[str, object]:
        """Returns the overrides in sections; in the file, their paths may be dotted."""
        root = Section(self._root.origin)
        for path, leaf in leaves(self._section("overrides")):
            merge(root, assignment(path.split("."), leaf.value, leaf.origin))
        overrides: dict[str, object] = values_of(root)
        return overrides

    def _search(self, space: Space, entries: Mapping[str, Leaf | Section]) -> Search:
        kind = self._one_of("search.type", SEARCHES) or "random"
        trials = self._trials(kind, space, entries)
        halving = self._halving() if self._node("search.halving") is not None else None
        batch = self._integer("search.batch", 4, low=1)
        if kind not in LEARNING and self._node("search.batch") is not None:
            message = f"has no effect with type: {kind}; remove it"
            self._problem("no-effect", "search.batch", message)
        if halving and kind in LEARNING and batch < 2:
            message = "got 1, allowed with halving: at least 2"
            self._problem("out-of-range", "search.batch", message)
        seed = self._integer("search.seed", 0, low=0)
        return Search(type=kind, trials=trials, seed=seed, batch=batch, halving=halving)

    def _trials(self, kind: str, space: Space, entries: Mapping[str, Leaf | Section]) -> int:
        is_set = self._node("search.trials") is not None
        if kind != "grid":
            if not is_set:
                self._problem("not-set", "search.trials", f"is not set; type: {kind} requires it")
                return 1
            return self._integer("search.trials", 1, low=1, high=MAX_TRIALS)
        for dimension in space:
            if dimension.values.grid() is None:
                path = dimension.path
                message = "a grid search needs the number of its values: add `grid: 5`"
                self._problem("not-set", f"space.{path}", message, entries[path])
                return 1
        count = len(grid_settings(space))
        if count >= MAX_GRID:
            self._problem("out-of-range", "space", f"the grid has {MAX_GRID:,} trials or more")
        if not is_set:
            return count
        return min(count, self._integer("search.trials", count, low=1, high=MAX_TRIALS))

    def _halving(self) -> Halving:
        rungs = self._integers("search.halving.rungs")
        if rungs is not None and (not rungs or rungs != sorted({*rungs}) or rungs[0] < 1):
            message = f"got {rungs}, expected steps in ascending order, such as [100, 200]"
            self._problem("out-of-range", "search.halving.rungs", message)
        keep = self._value("search.halving.keep")
        is_number = isinstance(keep, (int, float)) and not isinstance(keep, bool)
        if not is_number or not 0 < keep < 1:
            message = f"got {keep!r}, allowed: between 0 and 1"
            self._problem("out-of-range", "search.halving.keep", message)
            keep = 0.5
        return Halving(tuple(rungs or ()), float(keep))

    def _seeds(self) -> int | tuple[int, ...]:
        value = self._value("seeds")
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return self._integer("seeds", 1, low=1, high=MAX_SEEDS)
        seeds = self._integers("seeds") or []
        if not seeds or len({*seeds}) < len(seeds) or min(seeds) < 0:
            message = f"got {value!r}, expected their number or different seeds"
            self._problem("wrong-type", "seeds", message)
            return 1
        return tuple(seeds)

    def _check_keys(self, section: Section, above: str) -> None:
        for name, node in section.children.items():
            path = f"{above}.{name}".lstrip(".")
            if name not in _KEYS[above]:
                message = unknown_name_message("key", name, _KEYS[above])
                self._problem("unknown-setting", path, message, node)
            elif path in _KEYS and isinstance(node, Section):
                self._check_keys(node, path)
            elif path in _KEYS and isinstance(node, Leaf):
                self._problem("wrong-type", path, f"got {node.value!r}, expected a section", node)

    def _section(self, path: str) -> Section:
        node = self._node(path)
        if node is None or isinstance(node, Section):
            return node or Section(self._root.origin)
        if node.value is not None:
            self._problem("wrong-type", path, f"got {node.value!r}, expected a section", node)
        return Section(node.origin)

    def _value(self, path: str) -> Any:
        node = self._node(path)
        return values_of(node) if node is not None else None

    def _text(self, path: str, *, required: bool = False) -> str:
        value = self._value(path)
        if value is None and required:
            self._problem("not-set", path, f"is not set\n{_EXAMPLE}")
        elif value is not None and not isinstance(value, str):
            self._problem("wrong-type", path, f"got {value!r}, expected a text")
        return value if isinstance(value, str) else ""

    def _texts(self, path: str) -> tuple[str, ...]:
        value = self._value(path)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(text, str) and text for text in values):
            message = f"got {value!r}, expected a file or a list of files"
            self._problem("wrong-type", path, message)
            return ()
        return tuple(values)

    def _one_of(self, path: str, allowed: Sequence[str], *, required: bool = False) -> str:
        value = self._text(path, required=required)
        if value and value not in allowed:
            message = unknown_name_message(path.rpartition(".")[2], value, allowed)
            self._problem("not-allowed", path, message)
        return value

    def _integer(self, path: str, default: int, *, low: int, high: float = math.inf) -> int:
        value = self._value(path)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            most = "" if high == math.inf else f" and at most {high:,}"
            message = f"got {value!r}, expected an integer of at least {low}{most}"
            self._problem("out-of-range", path, message)
            return default
        return value

    def _integers(self, path: str) -> list[int] | None:
        value = self._value(path)
        if isinstance(value, list) and all(type(item) is int for item in value):
            return value
        self._problem("wrong-type", path, f"got {value!r}, expected a list of integers")
        return None


def _lines(root: Section) -> dict[str, int | None]:
    """Returns the line of each key by dotted path; of overrides, that of the setting as well."""
    lines: dict[str, int | None] = {}
    for path, leaf in leaves(root):
        parts = path.split(".")
        for count in range(1, len(parts) + 1):
            lines.setdefault(".".join(parts[:count]), leaf.origin.line)
    return lines


# The distributions of a setting, with the other keys that each allows.
_KINDS = {
    "choice": (),
    "uniform": ("grid",),
    "log_uniform": ("grid",),
    "int": ("grid", "log", "step"),
}
_EXPECTED = (
    "a list of values, or one of: {choice: […]}, {uniform: [a, b]}, {log_uniform: [a, b]}, "
    "{int: [a, b]}"
)
_SECTIONS = ("task", "trainer", "runtime")


class _SettingParser(_Problems):
    """Parses what the section `space` says of one setting."""

    def __init__(self, path: str, node: Leaf | Section, root: Section, label: str) -> None:
        super().__init__(root, label)
        self._path = path
        self._setting = node

    def check_path(self, earlier: Sequence[str]) -> None:
        """Checks the name of the setting, given those before it."""
        path = self._path
        section = path.partition(".")[0]
        if section not in _SECTIONS or "." not in path:
            near = nearest_name_hint(section, _SECTIONS) if section not in _SECTIONS else ""
            message = f"expected a setting of {', '.join(_SECTIONS)} by its dotted path{near}"
            self._wrong("unknown-setting", message)
        if path == "runtime.seed":
            self._wrong("not-allowed", "cannot vary; use the key `seeds`")
        for other in earlier:
            if path.startswith(f"{other}.") or other.startswith(f"{path}."):
                self._wrong("conflict", f"overlaps with {other}; let only one of them vary")

    def values(self) -> Values | None:
        """Returns the values; None after a problem."""
        node = self._setting
        if isinstance(node, Leaf):
            if isinstance(node.value, (list, tuple)):
                return self._choice([*node.value], node)
            self._wrong("wrong-type", f"got {node.value!r}, expected {_EXPECTED}")
            return None
        kinds = [name for name in node.children if name in _KINDS]
        if len(kinds) != 1:
            others = [name for name in node.children if name != "when"]
            unknown = not kinds and others
            got = unknown_name_message("distribution", others[0], [*_KINDS]) if unknown else ""
            self._wrong("wrong-type", f"{got or f'got {others}'}\nexpected {_EXPECTED}")
            return None
        kind = kinds[0]
        allowed = (kind, "when", *_KINDS[kind])
        for name, child in node.children.items():
            if name not in allowed:
                message = unknown_name_message("key", name, allowed)
                self._wrong("unknown-setting", message, child)
        value = node.children[kind]
        if not isinstance(value, Leaf) or not isinstance(value.value, (list, tuple)):
            self._wrong("wrong-type", f"{kind}: expected a list", value)
            return None
        if kind == "choice":
            return self._choice([*value.value], value)
        return self._range(kind, [*value.value], node)

    def _choice(self, values: list[object], node: Leaf | Section) -> Choice | None:
        if not values:
            self._wrong("not-set", "the choice is empty; list at least one value", node)
            return None
        repeated = [value for index, value in enumerate(values) if value in values[:index]]
        if repeated:
            self._wrong("set-twice", f"the choice lists {repeated[0]!r} twice", node)
        return Choice(tuple(values))

    def _range(self, kind: str, ends: list[Any], node: Section) -> Values | None:
        count = self._option(node, "grid", None)
        place = node.children[kind]
        if len(ends) != 2 or not all(map(is_finite_number, ends)) or not ends[0] < ends[1]:
            message = f"{kind}: got {ends}, expected two numbers [a, b] with a < b"
            self._wrong("wrong-type", message, place)
            return None
        is_log = kind == "log_uniform" or self._flag(node, "log")
        if is_log and ends[0] <= 0:
            message = f"{kind}: got {ends}; the logarithm requires numbers above 0"
            self._wrong("out-of-range", message, place)
            return None
        if kind != "int":
            return Uniform(float(ends[0]), float(ends[1]), is_log, count)
        if not all(type(end) is int for end in ends):
            self._wrong("wrong-type", f"int: got {ends}, expected integers", place)
            return None
        step = self._option(node, "step", 1)
        if is_log and step != 1:
            message = "step has no effect with log: true; remove one of them"
            self._wrong("no-effect", message)
        return Integers(ends[0], ends[1], step or 1, is_log, count)

    def _option(self, node: Section, name: str, default: int | None) -> int | None:
        child = node.children.get(name)
        if child is None:
            return default
        value = child.value if isinstance(child, Leaf) else child
        if type(value) is not int or value < 1:
            self._wrong("out-of-range", f"{name}: expected an integer of at least 1", child)
            return default
        return value

    def _flag(self, node: Section, name: str) -> bool:
        child = node.children.get(name)
        if child is not None and not (isinstance(child, Leaf) and type(child.value) is bool):
            self._wrong("wrong-type", f"{name}: expected true or false", child)
        return isinstance(child, Leaf) and child.value is True

    def when(self, earlier: Mapping[str, Dimension]) -> dict[str, tuple[object, ...]]:
        """Returns the conditions, which name settings before this one."""
        node = self._setting
        child = node.children.get("when") if isinstance(node, Section) else None
        if child is None:
            return {}
        if not isinstance(child, Section) or not child.children:
            message = "when: expected other settings of the space, such as {task.model.name: [cnn]}"
            self._wrong("wrong-type", message, child)
            return {}
        conditions = {}
        for parent, leaf in leaves(child):
            values = leaf.value if isinstance(leaf.value, (list, tuple)) else [leaf.value]
            conditions[parent] = tuple(values)
            self._check_condition(parent, values, earlier)
        return conditions

    def _check_condition(
        self, parent: str, values: Sequence[object], earlier: Mapping[str, Dimension]
    ) -> None:
        if parent not in earlier:
            near = nearest_name_hint(parent, earlier)
            message = f"when: {parent} is not a setting of the space before this one{near}"
            self._wrong("unknown-setting", message)
            return
        allowed = earlier[parent].values
        if not isinstance(allowed, Choice):
            message = f"when: {parent} is a range; only a choice can be a condition"
            self._wrong("not-supported", message)
            return
        others = [value for value in values if value not in allowed.values]
        if others or not values:
            got = repr(others[0]) if others else "no value"
            known = ", ".join(map(str, allowed.values))
            self._wrong("not-allowed", f"when: {parent} is never {got}\nallowed: {known}")

    def _wrong(self, code: str, message: str, node: Leaf | Section | None = None) -> None:
        self._problem(code, f"space.{self._path}", message, node or self._setting)


def values_of(node: Leaf | Section) -> Any:
    """Returns the values of a tree as dicts and lists."""
    if isinstance(node, Section):
        return {name: values_of(child) for name, child in node.children.items()}
    return [*node.value] if isinstance(node.value, tuple) else node.value
