"""Pages, as a browser reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
        outside: What charts draw outside of the area between their axes.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.outside: list[str] = []
        self._areas: list[tuple[float, float] | None] = []
        self.texts: list[str] = []
        self.elements: list[str] = []
        self.headings: list[str] = []
        self.charts: list[str] = []
        self.loads: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert self._open == []
        assert self.outside == [], self.outside[:5]
        assert "script" not in self.elements

    @property
    def text(self) -> str:
        """All texts, each followed by a space."""
        return "".join(f"{text} " for text in self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "svg":
            self._areas.append(_area({name: value or "" for name, value in attrs}))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        links = ("src", "href", "xlink:href")
        self.loads += [value or "" for name, value in attrs if name in links]
        if self._areas and self._areas[-1] and tag != "text":
            width, height = self._areas[-1]
            for x, y in _places(tag, {name: value or "" for name, value in attrs}):
                if not (-0.1 <= x <= width + 0.1 and -0.1 <= y <= height + 0.1):
                    self.outside.append(f"{tag} {attrs}: {x}, {y} outside of {width}, {height}")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "svg":
            self._areas.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._open[-1:] == ["h2"]:
            self.headings.append(data)
        if self._open[-1:] == ["figcaption"]:
            self.charts.append(data)


def _area(attributes: Mapping[str, str]) -> tuple[float, float] | None:
    """Returns the width and height of the area of a chart; None for a mark in it."""
    if "viewbox" in attributes:
        _, _, width, height = map(float, attributes["viewbox"].split())
        return width, height
    if "x" in attributes:
        return None
    height = attributes.get("height") or attributes["style"]
    return 100.0, float(re.sub(r"\D*([\d.]+).*", r"\1", height))  # x is in percent.


def _places(tag: str, attributes: Mapping[str, str]) -> Iterator[tuple[float, float]]:
    """Yields the coordinates of an element; those of a path without its relative commands."""
    values = {name: value.rstrip("%") for name, value in attributes.items()}
    if tag == "path":
        for command, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", values["d"]):
            ends = [float(number) for number in numbers.split()]
            if command in "MLC":
                yield from zip(ends[::2], ends[1::2], strict=True)
    for x, y in (("cx", "cy"), ("x1", "y1"), ("x2", "y2"), ("x", "y")):
        if x in values or y in values:
            yield float(values.get(x, 0)), float(values.get(y, 0))
    if tag == "rect":
        yield float(values.get("x", 0)) + float(values["width"]), float(values["height"])
