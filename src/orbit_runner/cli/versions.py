"""`runner --version`: prints the versions and devices that a bug report should include."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.rows import JSON
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.reporting.run_record import describe_devices, describe_software
from orbit_runner.utils.streams import print_message, print_result


def main(flags: argparse.Namespace) -> int:
    """Prints versions, the git revision and devices. Returns 0."""
    software = {**describe_software(), **_describe_code()}
    if not flags.json:
        print_result("\n".join(_lines(software)))  # At once: TensorFlow takes seconds, or fails.
    print_message("importing tensorflow, to list devices")
    devices = _describe_devices()
    return emit(flags, {**software, **devices}, _lines(devices))


def _lines(values: Mapping[str, object]) -> Iterator[str]:
    for name, value in values.items():
        text = ", ".join(value) or "none" if isinstance(value, list) else value
        yield f"{name:<20} {text}"


def _describe_code() -> dict[str, object]:
    from orbit_runner.run_directory.code_version import read_code_version

    code = read_code_version()
    changed = "unknown" if code.changed is None else len(code.changed)
    return {"git": code.revision or code.notes[0], "git_changed_files": changed}


def _describe_devices() -> dict[str, object]:
    from orbit_runner.determinism.portable import c_library, machine_problem
    from orbit_runner.distribute.tf_environment import prepare_environment

    prepare_environment(RuntimeConfig())
    problem = machine_problem()
    portable = f"no: {problem}" if problem else f"yes (x86-64 with AVX2 and FMA; {c_library()})"
    return {**describe_devices(), "portable_numerics": portable}


COMMAND = Command(
    "--version", "Print versions, the git revision and devices.", [JSON], ["--json"], main
)
