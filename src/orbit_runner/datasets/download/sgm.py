"""The sentences of an SGML test set of WMT."""

from __future__ import annotations

import re
from pathlib import Path

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)


def sentences(source: Path, target: Path) -> int:
    """Writes the text of each segment on a line of its own.

    Entities such as `&amp;` stay as they are, which is what Moses' `input-from-sgm.perl` and
    sacreBLEU do, so that scores compare.

    Args:
        source: The SGML file, UTF-8.
        target: The text file.

    Returns:
        The number of lines.
    """
    found = _SEGMENT.findall(source.read_text(encoding="utf-8"))
    lines = [" ".join(text.split()) for text in found]
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)
