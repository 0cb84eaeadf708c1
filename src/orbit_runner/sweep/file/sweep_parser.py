"""Reads a sweep file, and reports all its problems at once, with their lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.parsing.search_path import read_text
from orbit_runner.config.parsing.tree import Leaf, Section, assignment, leaves, merge
from orbit_runner.config.parsing.yaml_files import load_text
from orbit_runner.errors import unknown_name_message
from orbit_runner.sweep.file.space_parser import SpaceParser, values_of
from orbit_runner.sweep.file.sweep_file import (
    LEARNING,
    MODES,
    SEARCHES,
    VALUES,
    Halving,
    Search,
    SweepFile,
)
from orbit_runner.sweep.search.draws import MAX_GRID, grid_settings
from orbit_runner.sweep.search.space import Space

MAX_TRIALS, MAX_SEEDS = 100_000, 1000
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
    found = _Parser(root, label)
    sweep = found.sweep()
    if found.problems:
        raise ConfigError(found.problems)
    return sweep


class _Parser:
    """Builds a `SweepFile` from a tree, and collects problems."""

    def __init__(self, root: Section, label: str) -> None:
        self.problems: list[Problem] = []
        self._root, self._label = root, label
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
            self._problem("space", f"lists no setting to vary\n{_EXAMPLE}")
        return sweep

    def _overrides(self) -> dict[str, Any]:
        """Returns the overrides in sections; in the file, their paths may be dotted."""
        root = Section(self._default)
        for path, leaf in leaves(self._section("overrides")):
            merge(root, assignment(path.split("."), leaf.value, leaf.origin))
        found: dict[str, Any] = values_of(root)
        return found

    def _search(self, space: Space) -> Search:
        kind = self._one_of("search.type", SEARCHES) or "random"
        trials = self._trials(kind, space)
        halving = self._halving() if self._node("search.halving") is not None else None
        batch = self._integer("search.batch", 4, low=1)
        if kind not in LEARNING and self._node("search.batch") is not None:
            self._problem("search.batch", f"has no effect with type: {kind}; remove it")
        if halving and kind in LEARNING and batch < 2:
            self._problem("search.batch", "got 1, allowed with halving: at least 2")
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
                self._problem("search.trials", f"is not set; type: {kind} requires it")
                return 1
            return self._integer("search.trials", 1, low=1, high=MAX_TRIALS)
        for one in space:
            if one.values.grid() is None:
                path = f"space.{one.path}"
                message = "a grid search needs the number of its values: add `grid: 5`"
                self._problem(path, message, self._space_node(one.path))
                return 1
        count = len(grid_settings(space))
        if count >= MAX_GRID:
            self._problem("space", f"the grid has {MAX_GRID:,} trials or more")
        if self._node("search.trials") is None:
            return count
        return min(count, self._integer("search.trials", count, low=1, high=MAX_TRIALS))

    def _halving(self) -> Halving:
        rungs = self._integers("search.halving.rungs")
        if rungs is not None and (not rungs or list(rungs) != sorted({*rungs}) or rungs[0] < 1):
            self._problem(
                "search.halving.rungs",
                f"got {[*rungs]}, expected steps in ascending order, such as [100, 200]",
            )
        keep = self._value("search.halving.keep")
        is_number = isinstance(keep, (int, float)) and not isinstance(keep, bool)
        if not is_number or not 0 < keep < 1:
            self._problem("search.halving.keep", f"got {keep!r}, allowed: between 0 and 1")
            keep = 0.5
        return Halving(tuple(rungs or ()), float(keep))

    def _seeds(self) -> int | tuple[int, ...]:
        value = self._value("seeds")
        if value is None:
            return 1
        if isinstance(value, int) and not isinstance(value, bool):
            return self._integer("seeds", 1, low=1, high=MAX_SEEDS)
        found = self._integers("seeds") or ()
        if not found or len({*found}) < len(found) or min(found) < 0:
            self._problem("seeds", f"got {value!r}, expected their number or different seeds")
            return 1
        return tuple(found)

    def _check_keys(self, section: Section, above: str) -> None:
        for name, node in section.children.items():
            path = f"{above}.{name}".lstrip(".")
            if name not in _KEYS[above]:
                self._problem(path, unknown_name_message("key", name, _KEYS[above]), node)
            elif path in _KEYS:
                if isinstance(node, Section):
                    self._check_keys(node, path)
                else:
                    self._problem(path, f"got {node.value!r}, expected a section", node)

    def _node(self, path: str) -> Leaf | Section | None:
        node: Leaf | Section | None = self._root
        for name in path.split("."):
            node = node.children.get(name) if isinstance(node, Section) else None
        return node

    def _space_node(self, path: str) -> Leaf | Section | None:
        found = self._section("space").children.get(path)
        return found if found is not None else self._node(f"space.{path}")

    def _section(self, path: str) -> Section:
        node = self._node(path)
        if node is None or isinstance(node, Section):
            return node or Section(self._default)
        if node.value is not None:
            self._problem(path, f"got {node.value!r}, expected a section", node)
        return Section(node.origin)

    def _value(self, path: str) -> Any:
        node = self._node(path)
        return values_of(node) if node is not None else None

    def _text(self, path: str, *, required: bool = False) -> str:
        value = self._value(path)
        if value is None and required:
            self._problem(path, f"is not set\n{_EXAMPLE}")
        elif value is not None and not isinstance(value, str):
            self._problem(path, f"got {value!r}, expected a text")
        return value if isinstance(value, str) else ""

    def _texts(self, path: str) -> tuple[str, ...]:
        value = self._value(path)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(one, str) and one for one in values):
            self._problem(path, f"got {value!r}, expected a file or a list of files")
            return ()
        return tuple(values)

    def _one_of(self, path: str, allowed: Sequence[str], *, required: bool = False) -> str:
        value = self._text(path, required=required)
        if value and value not in allowed:
            self._problem(path, unknown_name_message(path.rpartition(".")[2], value, allowed))
        return value

    def _integer(self, path: str, default: int, *, low: int, high: float = math.inf) -> int:
        value = self._value(path)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            most = "" if high == math.inf else f" and at most {high:,}"
            self._problem(path, f"got {value!r}, expected an integer of at least {low}{most}")
            return default
        return value

    def _integers(self, path: str) -> list[int] | None:
        value = self._value(path)
        is_list = isinstance(value, list) and all(type(one) is int for one in value)
        if not is_list:
            self._problem(path, f"got {value!r}, expected a list of integers")
            return None
        assert isinstance(value, list)
        return value

    def _problem(self, path: str, message: str, node: Leaf | Section | None = None) -> None:
        above = path
        while node is None and above:
            node = self._node(above)
            above = above.rpartition(".")[0]
        origin = node.origin if node is not None else self._default
        self.problems.append(Problem(path, message, origin))


def _lines(root: Section) -> dict[str, int | None]:
    """Returns the line of each key by dotted path; of overrides, that of the setting as well."""
    found: dict[str, int | None] = {}
    for path, leaf in leaves(root):
        parts = path.split(".")
        for count in range(1, len(parts) + 1):
            found.setdefault(".".join(parts[:count]), leaf.origin.line)
    return found
