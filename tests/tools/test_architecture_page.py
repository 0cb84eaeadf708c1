"""docs/architecture.md shows the layers and what each package says about itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import architecture_page


def test_the_table_of_layers_is_up_to_date() -> None:
    text = architecture_page.PAGE.read_text(encoding="utf-8")

    assert text == architecture_page.page(), "run `python -m tools.architecture_page`"


def test_another_docstring_is_another_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docstrings = {
        "errors.py": "What went wrong.\n\nMore.",
        "data/__init__.py": "Rows.\n\nOf files.",
    }
    for name, docstring in docstrings.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'"""{docstring}"""\n', encoding="utf-8")
    monkeypatch.setattr(architecture_page, "_SOURCE", tmp_path)
    monkeypatch.setattr(architecture_page, "LAYERS", ("errors", "data"))

    text = architecture_page.page()

    assert "| `errors.py` | What went wrong. Never imports TensorFlow. |\n" in text
    assert "| `data/` | Rows. Of files. |\n\n" in text
