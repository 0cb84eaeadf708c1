"""docs/architecture.md shows the layers and what each package says about itself."""

from __future__ import annotations

from tools import architecture_page


def test_the_table_of_layers_is_up_to_date():
    text = architecture_page.PAGE.read_text(encoding="utf-8")

    assert text == architecture_page.page(), "run `python -m tools.architecture_page`"
