"""The examples of an evaluation as a section of a page."""

from __future__ import annotations

from orbit_runner.reporting.html.confusion_matrix import confusion_matrix
from orbit_runner.reporting.html.page import paragraph, subsection, table
from orbit_runner.reporting.html.picture_grid import picture_grid
from orbit_runner.reporting.report_data.files import EvaluationData


def evaluation_content(found: EvaluationData | None) -> str:
    """Returns confusion matrix, pictures and a table, or why they are not known."""
    if found is None:
        return ""
    if found.problem:
        return paragraph(f"examples were not collected: {found.problem}")
    pictures = picture_grid(found.pictures)
    at_step = f"step {found.step:,}"
    return "".join(
        [
            paragraph(f"{at_step}: {found.note}" if found.note else at_step),
            subsection("Confusion matrix", confusion_matrix(found.confusion, found.classes)),
            subsection("Worst mistakes", pictures) if found.confusion else pictures,
            table(found.head, found.rows, text=True),
        ]
    )
