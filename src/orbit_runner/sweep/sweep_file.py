"""Reads a sweep file, and reports all its problems at once, with their lines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
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
    find_cycle,
    grid_settings,
    sort_by_dependency,
)

MODES = ("max", "min")
# The value of the metric that is the objective of a run: of its last evaluation, or the best one.
VALUES = ("last", "best")
SEARCHES = ("random", "grid", "tpe", "cma_es")
# Searches that learn from results, in batches.
LEARNING = ("tpe", "cma_es")


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


class _Parser:
    """Builds a `SweepFile` from a tree, and collects problems."""

    def __init__(self, root: Section, label: str) -> None:
        self.problems: list[Problem] = []
        self._root = root
        self._label = label
        self._default = root.origin

    def sweep(self) -> SweepFile:
        self._check_keys(self._root, "")
        space_parser = SpaceParser(self._section("space"), self.problems)
        space = space_parser.space()
        sweep = SweepFile(
            label=self._label,
            experiment=self._text("experiment", required=True),
            config_files=self._texts("config_file"),
            overrides=self._overrides(),
            space=space,
            metric=self._text("objective.metric", required=True),
            mode=self._one_of("objective.mode", MODES, required=True),
            value=self._one_of("objective.value", VALUES) or "last",
            search=self._search(space),
            seeds=self._seeds(),
            description=self._text("description"),
            values={**values_of(self._root), "space": space_parser.raw_values},
            lines={**_lines(self._root), **space_parser.lines},
        )
        if not space and not self.problems:
            self._problem("space", f"lists no setting to vary\n{_EXAMPLE}", code="not-set")
        return sweep

    def _overrides(self) -> dict[str, object]:
        """Returns the overrides in sections; in the file, their paths may be dotted."""
        root = Section(self._default)
        for path, leaf in leaves(self._section("overrides")):
            merge(root, assignment(path.split("."), leaf.value, leaf.origin))
        overrides: dict[str, object] = values_of(root)
        return overrides

    def _search(self, space: Space) -> Search:
        kind = self._one_of("search.type", SEARCHES) or "random"
        trials = self._trials(kind, space)
        halving = self._halving() if self._node("search.halving") is not None else None
        batch = self._integer("search.batch", 4, low=1)
        if kind not in LEARNING and self._node("search.batch") is not None:
            self._problem(
                "search.batch", f"has no effect with type: {kind}; remove it", code="no-effect"
            )
        if halving and kind in LEARNING and batch < 2:
            self._problem(
                "search.batch", "got 1, allowed with halving: at least 2", code="out-of-range"
            )
        return Search(
            type=kind,
            trials=trials,
            seed=self._integer("search.seed", 0, low=0),
            batch=batch,
            halving=halving,
        )

    def _trials(self, kind: str, space: Space) -> int:
        if kind != "grid":
            if self._node("search.trials") is None:
                self._problem(
                    "search.trials", f"is not set; type: {kind} requires it", code="not-set"
                )
                return 1
            return self._integer("search.trials", 1, low=1, high=MAX_TRIALS)
        for dimension in space:
            if dimension.values.grid() is None:
                path = f"space.{dimension.path}"
                message = "a grid search needs the number of its values: add `grid: 5`"
                self._problem(path, message, self._space_node(dimension.path), code="not-set")
                return 1
        count = len(grid_settings(space))
        if count >= MAX_GRID:
            self._problem("space", f"the grid has {MAX_GRID:,} trials or more", code="out-of-range")
        if self._node("search.trials") is None:
            return count
        return min(count, self._integer("search.trials", count, low=1, high=MAX_TRIALS))

    def _halving(self) -> Halving:
        rungs = self._integers("search.halving.rungs")
        if rungs is not None and (not rungs or list(rungs) != sorted({*rungs}) or rungs[0] < 1):
            self._problem(
                "search.halving.rungs",
                f"got {[*rungs]}, expected steps in ascending order, such as [100, 200]",
                code="out-of-range",
            )
        keep = self._value("search.halving.keep")
        is_number = isinstance(keep, (int, float)) and not isinstance(keep, bool)
        if not is_number or not 0 < keep < 1:
            self._problem(
                "search.halving.keep",
                f"got {keep!r}, allowed: between 0 and 1",
                code="out-of-range",
            )
            keep = 0.5
        return Halving(tuple(rungs or ()), float(keep))

    def _seeds(self) -> int | tuple[int, ...]:
        value = self._value("seeds")
        if value is None:
            return 1
        if isinstance(value, int) and not isinstance(value, bool):
            return self._integer("seeds", 1, low=1, high=MAX_SEEDS)
        seeds = self._integers("seeds") or ()
        if not seeds or len({*seeds}) < len(seeds) or min(seeds) < 0:
            self._problem(
                "seeds",
                f"got {value!r}, expected their number or different seeds",
                code="wrong-type",
            )
            return 1
        return tuple(seeds)

    def _check_keys(self, section: Section, above: str) -> None:
        for name, node in section.children.items():
            path = f"{above}.{name}".lstrip(".")
            if name not in _KEYS[above]:
                self._problem(
                    path,
                    unknown_name_message("key", name, _KEYS[above]),
                    node,
                    code="unknown-setting",
                )
            elif path in _KEYS:
                if isinstance(node, Section):
                    self._check_keys(node, path)
                else:
                    self._problem(
                        path, f"got {node.value!r}, expected a section", node, code="wrong-type"
                    )

    def _node(self, path: str) -> Leaf | Section | None:
        node: Leaf | Section | None = self._root
        for name in path.split("."):
            node = node.children.get(name) if isinstance(node, Section) else None
        return node

    def _space_node(self, path: str) -> Leaf | Section | None:
        node = self._section("space").children.get(path)
        return node if node is not None else self._node(f"space.{path}")

    def _section(self, path: str) -> Section:
        node = self._node(path)
        if node is None or isinstance(node, Section):
            return node or Section(self._default)
        if node.value is not None:
            self._problem(path, f"got {node.value!r}, expected a section", node, code="wrong-type")
        return Section(node.origin)

    def _value(self, path: str) -> Any:
        node = self._node(path)
        return values_of(node) if node is not None else None

    def _text(self, path: str, *, required: bool = False) -> str:
        value = self._value(path)
        if value is None and required:
            self._problem(path, f"is not set\n{_EXAMPLE}", code="not-set")
        elif value is not None and not isinstance(value, str):
            self._problem(path, f"got {value!r}, expected a text", code="wrong-type")
        return value if isinstance(value, str) else ""

    def _texts(self, path: str) -> tuple[str, ...]:
        value = self._value(path)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(text, str) and text for text in values):
            self._problem(
                path, f"got {value!r}, expected a file or a list of files", code="wrong-type"
            )
            return ()
        return tuple(values)

    def _one_of(self, path: str, allowed: Sequence[str], *, required: bool = False) -> str:
        value = self._text(path, required=required)
        if value and value not in allowed:
            self._problem(
                path,
                unknown_name_message(path.rpartition(".")[2], value, allowed),
                code="not-allowed",
            )
        return value

    def _integer(self, path: str, default: int, *, low: int, high: float = math.inf) -> int:
        value = self._value(path)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            most = "" if high == math.inf else f" and at most {high:,}"
            self._problem(
                path,
                f"got {value!r}, expected an integer of at least {low}{most}",
                code="out-of-range",
            )
            return default
        return value

    def _integers(self, path: str) -> list[int] | None:
        value = self._value(path)
        is_list = isinstance(value, list) and all(type(item) is int for item in value)
        if not is_list:
            self._problem(path, f"got {value!r}, expected a list of integers", code="wrong-type")
            return None
        assert isinstance(value, list)
        return value

    def _problem(
        self, path: str, message: str, node: Leaf | Section | None = None, *, code: str
    ) -> None:
        above = path
        while node is None and above:
            node = self._node(above)
            above = above.rpartition(".")[0]
        origin = node.origin if node is not None else self._default
        self.problems.append(Problem(path, message, origin, code))


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
# The sweep itself sets these.
_RESERVED = {
    "runtime.seed": "use the key `seeds`",
}


class SpaceParser:
    """Parses the section `space`, and collects problems."""

    def __init__(self, section: Section, problems: list[Problem]) -> None:
        self._section = section
        self._problems = problems
        self.lines: dict[str, int | None] = {}  # by the dotted path of the setting
        self.raw_values: dict[str, object] = {}  # as written in the file

    def space(self) -> Space:
        """Returns the settings, each after those that it depends on; () after a problem."""
        known = len(self._problems)
        dimensions: list[Dimension] = []
        for path, node in _entries(self._section):
            self.lines[path] = node.origin.line
            self.raw_values[path] = values_of(node)
            values = self._values(path, node)
            when = self._when(path, node)
            self._check_path(path, node, [dimension.path for dimension in dimensions])
            if values is not None:
                dimensions.append(Dimension(path, values, when))
        self._check_conditions(dimensions)
        return () if len(self._problems) > known else sort_by_dependency(dimensions)

    def _check_path(self, path: str, node: Leaf | Section, earlier: list[str]) -> None:
        if path.partition(".")[0] not in _SECTIONS or "." not in path:
            section = path.partition(".")[0]
            near = nearest_name_hint(section, _SECTIONS)
            message = f"expected a setting of {', '.join(_SECTIONS)}{near}"
            self._problem(path, message, node, code="unknown-setting")
        if path in _RESERVED:
            self._problem(path, f"cannot vary; {_RESERVED[path]}", node, code="not-allowed")
        if path in earlier:
            self._problem(path, "is set twice", node, code="set-twice")
        for earlier_path in earlier:
            if path.startswith(f"{earlier_path}.") or earlier_path.startswith(f"{path}."):
                self._problem(
                    path,
                    f"overlaps with {earlier_path}; let only one of them vary",
                    node,
                    code="conflict",
                )

    def _values(self, path: str, node: Leaf | Section) -> Values | None:
        if isinstance(node, Leaf):
            if isinstance(node.value, (list, tuple)):
                return self._choice(path, [*node.value], node)
            self._problem(
                path, f"got {node.value!r}, expected {_EXPECTED}", node, code="wrong-type"
            )
            return None
        kinds = [name for name in node.children if name in _KINDS]
        if len(kinds) != 1:
            others = [name for name in node.children if name != "when"]
            got = f"got {others}" if len(kinds) != 0 or not others else _unknown_kind(others[0])
            self._problem(path, f"{got}\nexpected {_EXPECTED}", node, code="wrong-type")
            return None
        kind = kinds[0]
        for name, child in node.children.items():
            if name not in (kind, "when", *_KINDS[kind]):
                message = unknown_name_message("key", name, [kind, "when", *_KINDS[kind]])
                self._problem(path, message, child, code="unknown-setting")
        value = node.children[kind]
        given = _items(value)
        if given is None:
            self._problem(path, f"{kind}: expected a list", value, code="wrong-type")
            return None
        if kind == "choice":
            return self._choice(path, given, value)
        return self._range(path, kind, given, node)

    def _choice(self, path: str, values: list[object], node: Leaf | Section) -> Choice | None:
        if not values:
            self._problem(
                path, "the choice is empty; list at least one value", node, code="not-set"
            )
            return None
        repeated = [value for index, value in enumerate(values) if value in values[:index]]
        if repeated:
            self._problem(path, f"the choice lists {repeated[0]!r} twice", node, code="set-twice")
        return Choice(tuple(values))

    def _range(self, path: str, kind: str, ends: list[Any], node: Section) -> Values | None:
        count = self._option(path, node, "grid", None)
        if len(ends) != 2 or not all(map(is_finite_number, ends)) or not ends[0] < ends[1]:
            message = f"{kind}: got {ends}, expected two numbers [a, b] with a < b"
            self._problem(path, message, node.children[kind], code="wrong-type")
            return None
        is_log = kind == "log_uniform" or self._flag(path, node, "log")
        if is_log and ends[0] <= 0:
            message = f"{kind}: got {ends}; the logarithm requires numbers above 0"
            self._problem(path, message, node.children[kind], code="out-of-range")
            return None
        if kind != "int":
            return Uniform(float(ends[0]), float(ends[1]), kind == "log_uniform", count)
        if not all(type(end) is int for end in ends):
            self._problem(
                path, f"int: got {ends}, expected integers", node.children[kind], code="wrong-type"
            )
            return None
        step = self._option(path, node, "step", 1)
        if is_log and step != 1:
            self._problem(
                path,
                "step has no effect with log: true; remove one of them",
                node,
                code="no-effect",
            )
        return Integers(ends[0], ends[1], step or 1, is_log, count)

    def _option(self, path: str, node: Section, name: str, default: int | None) -> int | None:
        child = node.children.get(name)
        if child is None:
            return default
        value = child.value if isinstance(child, Leaf) else child
        if type(value) is not int or value < 1:
            self._problem(
                path, f"{name}: expected an integer of at least 1", child, code="out-of-range"
            )
            return default
        return value

    def _flag(self, path: str, node: Section, name: str) -> bool:
        child = node.children.get(name)
        if child is not None and not (isinstance(child, Leaf) and type(child.value) is bool):
            self._problem(path, f"{name}: expected true or false", child, code="wrong-type")
        return isinstance(child, Leaf) and child.value is True

    def _when(self, path: str, node: Leaf | Section) -> dict[str, tuple[object, ...]]:
        child = node.children.get("when") if isinstance(node, Section) else None
        if child is None:
            return {}
        if not isinstance(child, Section) or not child.children:
            message = "when: expected other settings of the space, such as {task.model.name: [cnn]}"
            self._problem(path, message, child, code="wrong-type")
            return {}
        conditions = {}
        for parent, leaf in _conditions(child):
            values = leaf.value if isinstance(leaf.value, (list, tuple)) else [leaf.value]
            conditions[parent] = tuple(values)
        return conditions

    def _check_conditions(self, dimensions: list[Dimension]) -> None:
        by_path = {dimension.path: dimension for dimension in dimensions}
        nodes = dict(_entries(self._section))
        for dimension in dimensions:
            for parent, values in dimension.when.items():
                if parent not in by_path:
                    near = nearest_name_hint(parent, by_path)
                    message = f"when: {parent} is not a setting of the space{near}"
                    self._problem(
                        dimension.path, message, nodes[dimension.path], code="unknown-setting"
                    )
                    continue
                allowed = by_path[parent].values
                others = [] if not isinstance(allowed, Choice) else [
                    value for value in values if value not in allowed.values
                ]  # fmt: skip
                if others or not values:
                    known = ", ".join(str(value) for value in allowed.samples())
                    got = others[0] if others else "no value"
                    message = f"when: {parent} is never {got!r}\nallowed: {known}"
                    self._problem(
                        dimension.path, message, nodes[dimension.path], code="not-allowed"
                    )
                elif not isinstance(allowed, Choice):
                    message = f"when: {parent} is a range; only a choice can be a condition"
                    self._problem(
                        dimension.path, message, nodes[dimension.path], code="not-supported"
                    )
        cycle = find_cycle({dimension.path: [*dimension.when] for dimension in dimensions})
        if cycle:
            message = f"when: the conditions form a cycle: {' → '.join(cycle)}"
            self._problem(cycle[0], message, nodes[cycle[0]], code="conflict")

    def _problem(self, path: str, message: str, node: Leaf | Section, *, code: str) -> None:
        self._problems.append(Problem(f"space.{path}", message, node.origin, code))


def _entries(section: Section, above: str = "") -> Iterator[tuple[str, Leaf | Section]]:
    """Yields (dotted path, node) of each setting; its path may be dotted or nested."""
    for name, node in section.children.items():
        path = f"{above}{name}"
        # A misspelled distribution is recognized only below a dotted path.
        if isinstance(node, Leaf) or "." in name or {*node.children} & {*_KINDS, "when"}:
            yield path, node
        else:
            yield from _entries(node, f"{path}.")


def _conditions(section: Section, above: str = "") -> Iterator[tuple[str, Leaf]]:
    for name, node in section.children.items():
        if isinstance(node, Leaf):
            yield f"{above}{name}", node
        else:
            yield from _conditions(node, f"{above}{name}.")


def values_of(node: Leaf | Section) -> Any:
    """Returns the values of a tree as dicts and lists."""
    if isinstance(node, Section):
        return {name: values_of(child) for name, child in node.children.items()}
    return [*node.value] if isinstance(node.value, tuple) else node.value


def _items(node: Leaf | Section) -> list[object] | None:
    """Returns the items of a list, or None if the value is not a list."""
    if not isinstance(node, Leaf) or not isinstance(node.value, (list, tuple)):
        return None
    return [*node.value]


def _unknown_kind(name: str) -> str:
    return unknown_name_message("distribution", name, [*_KINDS])
