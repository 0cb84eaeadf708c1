"""`runner diff`: prints the differences between two configs."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence

from orbit_runner.cli.command import Command, Parser
from orbit_runner.cli.flags.config_flags import add_import_flag
from orbit_runner.cli.flags.values import CONFIG_FILE
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import Difference, differences


def main(flags: argparse.Namespace) -> int:
    """Prints the settings that differ between two experiments, files or runs. Returns 0."""
    changes = differences(*_resolve_both((flags.left, flags.right), tuple(flags.imports or ())))
    if flags.json:
        print(json.dumps({item.path: [item.left, item.right] for item in changes}, indent=2))
    else:
        print("\n".join(format_differences(changes, flags.left, flags.right)) or "no differences")
    return 0


def _add_flags(parser: Parser) -> None:
    left = dataclasses.replace(CONFIG_FILE, metavar="left", name="the first argument")
    right = dataclasses.replace(CONFIG_FILE, metavar="right", name="the second argument")
    parser.add_argument(
        "left", type=left, help="name of an experiment, a config file, or a run directory"
    )
    parser.add_argument("right", type=right, help="what to compare it with, in the same forms")
    add_import_flag(parser, metavar="IMPORTS")
    parser.add_argument(
        "--json", action="store_true", help="print JSON that maps each path to [left, right]"
    )


def _resolve_both(names: tuple[str, str], imports: tuple[str, ...]) -> list[ExperimentConfig]:
    configs: list[ExperimentConfig] = []
    problems: list[Problem] = []
    for name in names:
        try:
            configs.append(resolve(Request(experiment=name, imports=imports)).config)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return configs


def format_differences(changes: Sequence[Difference], left: str, right: str) -> list[str]:
    """Returns the lines of a three-column table, with `left` and `right` as headings."""
    if not changes:
        return []
    rows = [("", left, right), *((item.path, item.left, item.right) for item in changes)]
    first, second = (min(48, max(len(row[column]) for row in rows)) for column in (0, 1))
    return [f"{path:<{first}}  {a:<{second}}  {b}".rstrip() for path, a, b in rows]


COMMAND = Command(
    "diff",
    "Print the settings that differ between two experiments, files or runs.",
    _add_flags,
    ["digits digits_mlp"],
    main,
)
