"""Writes the pages of the reference, and the schema: `python -m tools.reference [DIRECTORY]`.

They are made from the code and the tests when the site is built, and are not in git. The first line
of each YAML file in `experiments/` and `configs/` names `docs/schema.json`, so that editors find it
then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from orbit_runner.config.json_schema import format_json_schema
from orbit_runner.config.schema.experiment import ExperimentConfig
from tools import commands_page, errors_page, promises_page, settings_page

DOCS = Path(__file__).resolve().parents[1] / "docs"
FILES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page.page,
    "settings.md": settings_page.page,
    "errors.md": errors_page.page,
    "promises.md": promises_page.page,
    "schema.json": lambda: format_json_schema(ExperimentConfig()),
}


def write(folder: Path) -> None:
    """Writes the files that are missing or different, because `mkdocs serve` watches them."""
    for name, text_of in FILES.items():
        path, text = folder / name, text_of()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
