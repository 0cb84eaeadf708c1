"""`runner env`: prints the versions and devices that a bug report should include."""

from __future__ import annotations

import argparse
import json
import sys

from orbit_runner.cli.command import Command, Parser
from orbit_runner.config.schema.runtime import RuntimeConfig


def main(flags: argparse.Namespace) -> int:
    """Prints versions, devices and the git revision. Returns 0."""
    print("querying TensorFlow devices …", file=sys.stderr)
    from orbit_runner.distribute.tf_environment import prepare_environment
    from orbit_runner.reporting.run_record import describe_devices, describe_software

    prepare_environment(RuntimeConfig())
    environment = {
        **describe_software(),
        **_describe_code(),
        **describe_devices(),
        "portable_numerics": _describe_portable(),
    }
    if flags.json:
        print(json.dumps(environment, indent=2))
    else:
        for name, value in environment.items():
            shown = ", ".join(value) or "none" if isinstance(value, list) else value
            print(f"{name:<20} {shown}")
    return 0


def _add_flags(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _describe_code() -> dict[str, object]:
    from orbit_runner.run_directory.code_version import read_code_version

    code = read_code_version()
    changed = "unknown" if code.changed is None else len(code.changed)
    return {"git": code.revision or code.notes[0], "git_changed_files": changed}


def _describe_portable() -> str:
    """Returns whether this machine can train with `runtime.numerics: portable`."""
    from orbit_runner.determinism.portable import c_library, machine_problem

    problem = machine_problem()
    return f"no: {problem}" if problem else f"yes (x86-64 with AVX2 and FMA; {c_library()})"


COMMAND = Command(
    "env", "Print versions, devices and the git revision.", _add_flags, ["--json"], main
)
