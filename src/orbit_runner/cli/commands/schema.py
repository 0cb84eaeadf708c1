"""`runner schema`: prints the JSON Schema of config files, for editors."""

from __future__ import annotations

import argparse
import json

from orbit_runner.cli.command import Command
from orbit_runner.cli.flags.config_flags import add_config_flags, build_request, print_notes
from orbit_runner.config.errors import Origin
from orbit_runner.config.json_schema import json_schema
from orbit_runner.config.resolve import Request, import_modules, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.utils.streams import use_utf8

_DESCRIPTION = """\
Print the JSON Schema (draft-07) of config files, with which editors complete and check them.
Without --experiment, it describes all tasks, models and data sources. With --experiment, it
describes the files that change that experiment, with its values as the defaults."""


def main(flags: argparse.Namespace) -> int:
    """Prints the schema. Returns 0."""
    request = build_request(flags)
    if request == Request(imports=request.imports):
        import_modules(request.imports, Origin("--import"))
        config = ExperimentConfig()
    else:
        resolved = resolve(request)
        print_notes(resolved)
        config = resolved.config
    use_utf8()
    print(format_json_schema(config), end="")
    return 0


def format_json_schema(config: ExperimentConfig) -> str:
    """Returns the schema of the files that can set the settings of a config, as JSON."""
    return json.dumps(json_schema(config), indent=1, ensure_ascii=False) + "\n"


COMMAND = Command("schema", _DESCRIPTION, add_config_flags, ["--experiment=digits"], main)
