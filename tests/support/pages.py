"""Pages, as a browser reads them."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

_VOID = ("meta", "br", "wbr", "hr", "img", "link", "input")


class Page(HTMLParser):
    """A page without scripts, whose elements are closed in order.

    Attributes:
        texts: Its texts in order.
        elements: The name of each element.
        headings: The texts of headings below that of the page.
        charts: The titles of charts.
        loads: What it would load from elsewhere, and its links.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: list[str] = []
        self.headings: list[str] = []
        self.charts: list[str] = []
        self.loads: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert self._open == []
        assert "script" not in self.elements

    @property
    def text(self) -> str:
        """All texts, each followed by a space."""
        return "".join(f"{text} " for text in self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        links = ("src", "href", "xlink:href")
        self.loads += [value or "" for name, value in attrs if name in links]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._open[-1:] == ["h2"]:
            self.headings.append(data)
        if self._open[-1:] == ["figcaption"]:
            self.charts.append(data)
