"""What the report shows of a classification: the confusion matrix and the worst mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tf_keras

from orbit_runner.tasks.mistakes import Mistake, find_mistakes
from orbit_runner.tasks.report_examples import ReportExamples

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

_MISTAKES = 24


def classification_examples(
    model: tf_keras.Model,
    batches: Iterable[Tensors],
    *,
    names: Sequence[str] = (),
    total: int | None = None,
) -> ReportExamples:
    """Returns the confusion matrix and the mistakes in which the label is the least probable.

    Args:
        model: Maps images to logits [batch, classes].
        batches: As `find_mistakes` takes them, with images as features.
        names: The names of the classes.
        total: The number of examples of the dataset; None if unknown.
    """
    mistakes = find_mistakes(model, batches, max_mistakes=_MISTAKES)
    return ReportExamples(
        note=mistakes.note(total),
        confusion=mistakes.confusion,
        classes=names,
        calibration=mistakes.calibration,
        images=np.stack([mistake.features for mistake in mistakes.worst])
        if mistakes.worst
        else None,
        captions=[_caption(mistake, names) for mistake in mistakes.worst],
    )


def _caption(mistake: Mistake, names: Sequence[str]) -> str:
    label, predicted = mistake.classes(names)
    return f"{label} → {predicted} {mistake.probability:.2f}\nexample {mistake.number:,}"
