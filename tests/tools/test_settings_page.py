"""docs/settings.md lists every setting, as declared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def in_new_process(expression: str) -> object:
    """Evaluates in a new process: tests in this one register tasks, which have settings."""
    code = (
        "import json\n"
        "from orbit_runner.config.describe import describe_settings\n"
        "from orbit_runner.config.schema.experiment import ExperimentConfig\n"
        "from tools.settings_page import page\n"
        f"print(json.dumps({expression}))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return json.loads(found.stdout)


def test_settings_page_is_up_to_date() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert text == in_new_process("page()"), "run `python -m tools.settings_page`"


def test_settings_page_has_a_row_for_every_setting() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    paths = in_new_process(
        "[one.path for one in describe_settings(ExperimentConfig()) if not one.is_section]"
    )
    assert isinstance(paths, list)
    assert len(paths) > 500
    for path in paths:
        parent, _, name = path.rpartition(".")
        heading = f"## `{parent}`\n" if parent else "## Top level\n"
        section = text.split(heading, 1)[1].split("\n## ", 1)[0]
        assert f"\n| `{name}` |" in section
