"""Extracts the sentences of an SGML test set of WMT."""

from __future__ import annotations

import re
from pathlib import Path

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)


def extract_sentences(source: Path, target: Path) -> int:
    """Writes the text of each segment on a separate line. Returns the number of lines.

    Entities such as `&amp;` are not decoded, as in Moses' `input-from-sgm.perl` and sacreBLEU, so
    that scores are comparable.
    """
    found = _SEGMENT.findall(source.read_text(encoding="utf-8"))
    lines = [" ".join(text.split()) for text in found]
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)
