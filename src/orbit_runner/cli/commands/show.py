"""`runner show`: prints the resolved config."""

from __future__ import annotations

import argparse
import json

from orbit_runner.cli.command import Command, Parser
from orbit_runner.cli.flags.config_flags import add_config_flags, build_request, print_notes
from orbit_runner.config.errors import DEFAULT
from orbit_runner.config.resolve import ResolvedConfig, resolve
from orbit_runner.config.serialize import flat_settings, to_yaml
from orbit_runner.utils.streams import use_utf8


def main(flags: argparse.Namespace) -> int:
    """Prints the resolved config as YAML that loads again to the same config. Returns 0."""
    resolved = resolve(build_request(flags))
    print_notes(resolved)
    if flags.json:
        print(json.dumps(_describe(resolved), indent=2))
    else:
        use_utf8()
        print(to_yaml(resolved.config, resolved.origins if flags.origins else None), end="")
    return 0


def _add_flags(parser: Parser) -> None:
    parser.add_argument("--origins", action="store_true", help="add where each value was set")
    parser.add_argument(
        "--json", action="store_true", help="print JSON that maps each path to {value, origin}"
    )
    add_config_flags(parser)


def _describe(resolved: ResolvedConfig) -> dict[str, object]:
    return {
        path: {"value": value, "origin": str(resolved.origins.get(path, DEFAULT))}
        for path, value in flat_settings(resolved.config).items()
    }


COMMAND = Command(
    "show",
    "Print the resolved config as YAML, which can be loaded as an experiment.",
    _add_flags,
    ["--experiment=digits --task.model.dropout_rate=0.2 --origins"],
    main,
)
