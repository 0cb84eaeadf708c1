"""Reads a sweep file, and reports all its problems at once, with their lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbit_runner.config.errors import ConfigError, Origin, Problem
from orbit_runner.config.parsing.builder import Builder
from orbit_runner.config.parsing.conversion import Mismatch
from orbit_runner.config.parsing.search_path import read_text
from orbit_runner.config.parsing.tree import Leaf, Section, assignment, leaves, merge
from orbit_runner.config.parsing.tree import plain_value as tree_value
from orbit_runner.config.parsing.yaml_files import load_text
from orbit_runner.config.schema.base import Config, Rule, config_class, field, is_finite_number
from orbit_runner.config.serialize import plain_value
from orbit_runner.sweep.search import (
    MAX_GRID,
    Choice,
    Range,
    Space,
    Values,
    grid_settings,
)

SEARCHES = ("random", "grid", "tpe")
# Searches that learn from results, in batches.
LEARNING = ("tpe",)
MAX_TRIALS = 100_000
MAX_SEEDS = 1000
_EXAMPLE = "a sweep file has the keys experiment, space, objective and search; see docs/sweeps.md"
_NOT_SET = f"is not set\n{_EXAMPLE}"


@config_class
class Halving(Config):
    """Successive halving: at each rung, only the best trials continue."""

    _rules = (
        Rule("rungs", lambda h: not h.rungs or [*h.rungs] != sorted({*h.rungs}),
             lambda h: f"got {[*h.rungs]}, expected steps in ascending order, such as [100, 200]",
             "out-of-range"),
    )  # fmt: skip
    rungs: tuple[int, ...] = field((), help="steps, ascending", ge=1)
    keep: float = field(0.5, help="part of the trials that continues at each rung", gt=0, lt=1)


@config_class
class Search(Config):
    """How the settings of trials are chosen."""

    _rules = (
        Rule("trials", lambda s: s.type != "grid" and not s.trials,
             "is not set; type: {s.type} requires it", "not-set"),
        Rule("batch", lambda s: s.learns and s.halving and s.batch < 2,
             "got 1, allowed with halving: at least 2", "out-of-range"),
        Rule("batch", lambda s: not s.learns and s.batch != 4,
             "has no effect with type: {s.type}; remove it", "no-effect"),
    )  # fmt: skip
    type: str = field("random", help="search", allowed=SEARCHES)
    trials: int = field(
        0, help="number of trials; for a grid, at most so many", ge=1, le=MAX_TRIALS
    )
    seed: int = field(0, help="seed of the draws", ge=0)
    batch: int = field(
        4, help="number of trials that are proposed before their results are needed", ge=1
    )
    halving: Halving | None = field(None, help="successive halving; null trains all to the end")

    @property
    def learns(self) -> bool:
        """Whether the settings of a trial depend on the results of earlier ones."""
        return self.type in LEARNING


@config_class
class Objective(Config):
    """What decides which trial is the best."""

    _rules = (
        Rule("metric", lambda o: not o.metric, _NOT_SET, "not-set"),
        Rule("mode", lambda o: not o.mode, _NOT_SET, "not-set"),
    )
    metric: str = field("", help="validation metric")
    mode: str = field("", help="whether large or small values are better", allowed=("max", "min"))
    value: str = field(
        "last", help="the value at the last step, or the best one", allowed=("last", "best")
    )


@config_class
class _Contents(Config):
    """The keys of a sweep file."""

    _rules = (
        Rule("experiment", lambda c: not c.experiment, _NOT_SET, "not-set"),
        Rule("space", lambda c: not c.space, f"lists no setting to vary\n{_EXAMPLE}", "not-set"),
        Rule("seeds", lambda c: not _are_seeds(c.seeds),
             lambda c: f"got {plain_value(c.seeds)}, expected their number, from 1 to "
             f"{MAX_SEEDS:,}, or different seeds", "out-of-range"),
    )  # fmt: skip
    experiment: str = field("", help="experiment, as `--experiment` takes it")
    config_file: str | tuple[str, ...] = field((), help="files that override it")
    overrides: Mapping[str, Any] = field(factory=dict, help="settings that override those files")
    space: Mapping[str, Any] = field(factory=dict, help="settings that vary")
    objective: Objective = field(factory=Objective, help="what decides")
    search: Search = field(factory=Search, help="how settings are chosen")
    seeds: int | tuple[int, ...] = field(1, help="`runtime.seed` of each run, or their number")
    description: str = field("", help="what the sweep is about")


def _are_seeds(seeds: int | tuple[int, ...]) -> bool:
    """Returns whether this is an allowed number of seeds, or a list of different seeds."""
    if isinstance(seeds, int):
        return 1 <= seeds <= MAX_SEEDS
    return bool(seeds) and len({*seeds}) == len(seeds) and min(seeds) >= 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFile:
    """A sweep.

    Attributes:
        label: The name of the file, for messages.
        experiment: The experiment, as `--experiment` takes it.
        config_files: Files that override it, as `--config_file` takes them.
        overrides: Settings that override those files, in sections.
        space: The values of the settings that vary, by dotted path.
        objective: What decides which trial is the best.
        search: How settings are chosen.
        seeds: `runtime.seed` of each run of a trial, or their number, counted from the seed of the
            experiment.
        values: The content of the file.
        origins: The place of each key of the file, by dotted path, and of each setting of the space
            and of the overrides.
        imports: Modules that are imported first.
    """

    label: str
    experiment: str
    config_files: tuple[str, ...]
    overrides: Mapping[str, object]
    space: Space
    objective: Objective
    search: Search
    seeds: int | tuple[int, ...]
    values: Mapping[str, Any]
    origins: Mapping[str, Origin]
    imports: tuple[str, ...] = ()

    def origin(self, path: str) -> Origin:
        """Returns the file and line of a key."""
        return self.origins.get(path, Origin(self.label))


def read_sweep_file(path: Path, label: str, imports: tuple[str, ...] = ()) -> SweepFile:
    """Reads a sweep file. Raises ConfigError with all its problems."""
    file = parse_sweep(load_text(read_text(path, label), label, 0), label)
    return dataclasses.replace(file, imports=imports)


def parse_sweep(root: Section, label: str) -> SweepFile:
    """Returns the sweep that a tree describes. Raises ConfigError with all its problems."""
    builder = Builder()
    contents = builder.build(_Contents(), root)
    assert isinstance(contents, _Contents)
    builder.check(contents)
    reports = (*builder.problems, *builder.notes)
    problems = [report.at(report.origin or root.origin) for report in reports]
    entries = _children(root, "space")
    space: dict[str, Values] = {}
    for path, node in entries.items():
        try:
            if path == "runtime.seed":
                raise Mismatch("cannot vary; use the key `seeds`", "not-allowed")
            if above := next((other for other in entries if path.startswith(f"{other}.")), ""):
                raise Mismatch(f"overlaps with {above}; let only one of them vary", "conflict")
            space[path] = _values(plain_value(tree_value(node)), contents.search.type)
        except Mismatch as error:
            problems.append(Problem(f"space.{path}", str(error), node.origin, error.code))
    search = contents.search
    if search.type == "grid" and not problems:
        count = len(grid_settings(space))
        if count >= MAX_GRID:
            message = f"the grid has {MAX_GRID:,} trials or more"
            problems.append(Problem("space", message, root.origin, "out-of-range"))
        search = search.replace(trials=min(count, search.trials or count))
    if problems:
        raise ConfigError(problems)
    overrides = Section(root.origin)  # In the file, their paths may be dotted.
    for path, leaf in leaves(Section(root.origin, _children(root, "overrides"))):
        merge(overrides, assignment(path.split("."), leaf.value, leaf.origin))
    files = contents.config_file
    return SweepFile(
        label=label,
        experiment=contents.experiment,
        config_files=(files,) if isinstance(files, str) else files,
        overrides=plain_value(tree_value(overrides)),
        space=space,
        objective=contents.objective,
        search=search,
        seeds=contents.seeds,
        values=plain_value(tree_value(root)),
        origins={
            **builder.origins,
            **{path: leaf.origin for path, leaf in leaves(root)},
            **{path: node.origin for path, node in entries.items()},
        },
    )


def _children(root: Section, name: str) -> dict[str, Leaf | Section]:
    node = root.children.get(name)
    return node.children if isinstance(node, Section) else {}


# The ranges of a setting, with the keys that each allows.
_RANGES = {"uniform": {"uniform"}, "log_uniform": {"log_uniform"}, "int": {"int", "log"}}
_EXPECTED = "a list of values, {uniform: [a, b]}, {log_uniform: [a, b]} or {int: [a, b]}"


def _values(entry: Any, search: str) -> Values:
    """Returns the values that an entry of the space describes. Raises Mismatch."""
    if isinstance(entry, list):
        if not entry:
            raise Mismatch("the list is empty; add at least one value", "not-set")
        repeated = [value for index, value in enumerate(entry) if value in entry[:index]]
        if repeated:
            raise Mismatch(f"lists {repeated[0]!r} twice", "set-twice")
        return Choice(tuple(entry))
    names = {*entry} if isinstance(entry, dict) else set()
    kind = next((name for name in _RANGES if name in names), "")
    if not kind or names - _RANGES[kind]:
        raise Mismatch(f"got {entry!r}, expected {_EXPECTED}")
    ends, is_log = entry[kind], entry.get("log", kind == "log_uniform")
    is_pair = isinstance(ends, list) and len(ends) == 2 and all(map(is_finite_number, ends))
    if not is_pair or not ends[0] < ends[1] or (is_log and ends[0] <= 0):
        positive = ", above 0" if is_log else ""
        raise Mismatch(f"{kind}: got {ends}, expected two numbers [a, b] with a < b{positive}")
    if not isinstance(is_log, bool):
        raise Mismatch(f"log: got {is_log!r}, expected true or false")
    is_integer = kind == "int"
    if is_integer and not all(type(end) is int for end in ends):
        raise Mismatch(f"int: got {ends}, expected integers")
    low, high = ends if is_integer else map(float, ends)
    values = Range(low, high, is_log, is_integer)
    if search == "grid" and values.grid() is None:
        raise Mismatch("a grid search needs a list of values", "not-supported")
    return values
