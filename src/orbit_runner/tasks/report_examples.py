"""What the report of a run shows of an evaluation, as a task returns it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportExamples:
    """What the report of a run shows of an evaluation. Each part can be left empty.

    Attributes:
        note: What the examples are, such as `the first 500 of 10,000 examples`.
        confusion: For classes by number, the count of each pair (label, prediction) that occurs.
        classes: The names of the classes; empty if they have none.
        images: Pictures, [n, height, width, channels] with 1, 3 or 4 channels; None if there are
            none. The report shows at most 32, and makes large pictures smaller.
        captions: The text below each picture. It may have several lines.
        head: The headings of a table.
        rows: The rows of the table. The report shows at most 50.
    """

    note: str = ""
    confusion: Mapping[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    classes: Sequence[str] = ()
    images: np.ndarray | None = None
    captions: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
