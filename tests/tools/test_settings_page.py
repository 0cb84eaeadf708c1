"""docs/settings.md lists every setting, as declared."""

from __future__ import annotations

from orbit_runner.config.describe import describe_settings
from orbit_runner.config.schema.experiment import ExperimentConfig
from tools.settings_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tools.settings_page`"


def test_every_setting_has_a_row() -> None:
    text = page()
    for one in describe_settings(ExperimentConfig()):
        parent, _, name = one.path.rpartition(".")
        if not one.is_section:
            heading = f"## `{parent}`\n" if parent else "## Top level\n"
            section = text.split(heading, 1)[1].split("\n## ", 1)[0]
            assert f"\n| `{name}` |" in section
