"""Writes docs/schema.json, the JSON Schema of config files: `python -m tools.schema_file`.

It is what `runner schema` prints. The first line of each YAML file of this repository names it, so
that editors find it. A test fails if the file is not up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orbit_runner.cli.commands.schema import format_json_schema
from orbit_runner.config.schema.experiment import ExperimentConfig

FILE = Path(__file__).resolve().parents[1] / "docs" / "schema.json"


def text() -> str:
    """Returns the text of the file."""
    return format_json_schema(ExperimentConfig())


def main() -> int:
    """Writes the file."""
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
