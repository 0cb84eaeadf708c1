"""`runner show`: prints the resolved config, how it differs from another, or its JSON Schema."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from orbit_runner.cli.command import Command, Parser, emit
from orbit_runner.cli.flags.config_flags import add_config_flags, build_request, print_notes
from orbit_runner.cli.flags.values import CONFIG_FILE
from orbit_runner.config.errors import DEFAULT, Origin
from orbit_runner.config.json_schema import format_json_schema
from orbit_runner.config.resolve import Request, ResolvedConfig, import_modules, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import Difference, differences, flat_settings, to_yaml
from orbit_runner.utils.streams import print_result
from orbit_runner.utils.text_table import table_lines

_DESCRIPTION = """\
Print the resolved config as YAML, which can be loaded as an experiment.

With --schema, print a JSON Schema (draft-07), with which editors complete and check config files:
of all tasks, models and data sources, or, with --experiment, of the files that change that
experiment, with its values as the defaults."""


def main(flags: argparse.Namespace) -> int:
    """Prints the config, its differences from another one, or the schema. Returns 0."""
    request = build_request(flags)
    if flags.schema and request == Request(imports=request.imports):
        import_modules(request.imports, Origin("--import"))
        print_result(format_json_schema(ExperimentConfig()), is_data=True)
        return 0
    resolved = resolve(request)
    if flags.diff:
        other = resolve(Request(experiment=flags.diff, imports=request.imports))
        changes = differences(resolved.config, other.config)
        values = {item.path: [item.left, item.right] for item in changes}
        emit(flags, values, _format_differences(changes, flags.experiment or "", flags.diff))
        return 0
    print_notes(resolved)
    if flags.schema:
        print_result(format_json_schema(resolved.config), is_data=True)
    elif flags.json:
        emit(flags, _describe(resolved), [])
    else:
        text = to_yaml(resolved.config, resolved.origins if flags.origins else None)
        print_result(text, is_data=True)
    return 0


def _add_flags(parser: Parser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--origins", action="store_true", help="add where each value was set")
    what.add_argument(
        "--diff",
        type=CONFIG_FILE,
        metavar="EXPERIMENT",
        help="print only the settings that differ from another experiment, config file or run",
    )
    what.add_argument("--schema", action="store_true", help="print the JSON Schema instead")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON that maps each path to {value, origin}; with --diff, to both values",
    )
    add_config_flags(parser)


def _format_differences(changes: Sequence[Difference], left: str, right: str) -> list[str]:
    """Returns the lines of a three-column table, with `left` and `right` as headings."""
    if not changes:
        return ["no differences"]
    rows = [("", left, right), *((item.path, item.left, item.right) for item in changes)]
    return table_lines(rows)


def _describe(resolved: ResolvedConfig) -> dict[str, object]:
    return {
        path: {"value": value, "origin": str(resolved.origins.get(path, DEFAULT))}
        for path, value in flat_settings(resolved.config).items()
    }


COMMAND = Command(
    "show",
    _DESCRIPTION,
    _add_flags,
    [
        "--experiment=digits --task.model.dropout_rate=0.2 --origins",
        "--experiment=digits --diff=digits_mlp",
        "--schema",
    ],
    main,
)
