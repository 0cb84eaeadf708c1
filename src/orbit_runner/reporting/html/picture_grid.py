"""A grid of pictures with captions, for pages."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from orbit_runner.reporting.report_data.files import Picture

_SMALL = 64  # Pictures with fewer pixels a side are enlarged without smoothing.


def picture_grid(pictures: Sequence[Picture]) -> str:
    """Returns the pictures with their captions; "" if there are none."""
    figures = "".join(_figure(one) for one in pictures)
    return f"<div class=pictures>{figures}</div>" if figures else ""


def _figure(picture: Picture) -> str:
    kind = " class=small" if max(_size(picture.png)) < _SMALL else ""
    lines = "<br>".join(escape(line) for line in picture.caption.splitlines())
    caption = f"<figcaption>{lines}</figcaption>" if lines else ""
    return (
        f'<figure><img{kind} alt="{escape(picture.caption)}" '
        f'src="data:image/png;base64,{escape(picture.png)}">{caption}</figure>'
    )


def _size(png: str) -> tuple[int, int]:
    """Returns width and height, which every PNG file has at the same place."""
    start = base64.b64decode(png[:32])
    return int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
