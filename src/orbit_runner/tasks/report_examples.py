"""What the report of a run shows of an evaluation, as a task returns it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportExamples:
    """What the report of a run shows of an evaluation. Each part can be left empty.

    Attributes:
        title: What the examples are predictions of; the report shows it above those in `others`.
        note: What the examples are, such as `the first 500 of 10,000 examples`.
        confusion: For classes by number, the count of each pair (label, prediction) that occurs.
        classes: The names of the classes; empty if they have none.
        calibration: How probable the predictions are and how often they are right, for each tenth
            of the probability in which there are any: the number of predictions, their mean
            probability, and the share that is the label.
        facts: Measures by name, as texts, such as those of the errors of a regression.
        images: Pictures, [n, height, width, channels] with 1, 3 or 4 channels; None if there are
            none. The report shows at most 32, and makes large pictures smaller.
        captions: The text below each picture. It may have several lines.
        head: The headings of a table.
        rows: The rows of the table. The report shows at most 50.
        others: The same for each of several targets.
    """

    title: str = ""
    note: str = ""
    confusion: Mapping[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    classes: Sequence[str] = ()
    calibration: Sequence[tuple[int, float, float]] = ()
    facts: Sequence[tuple[str, str]] = ()
    images: np.ndarray | None = None
    captions: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    others: Sequence[ReportExamples] = ()
