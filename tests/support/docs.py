"""The pages of the documentation, and what they show."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """Returns the blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.M | re.S)


def files_of(page: str) -> dict[str, str]:
    """Returns the files that a page shows, by the name above each."""
    files = re.findall(r"^`([\w/]+\.\w+)`:\n\n```\w+\n(.*?)^```", text_of(page), re.M | re.S)
    assert files
    return dict(files)


def write_files(page: str, folder: Path) -> None:
    """Writes the files that a page shows."""
    for name, content in files_of(page).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
