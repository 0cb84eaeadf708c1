"""What the report shows of a classification: the confusion matrix and the worst mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import starmap
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
    place: Callable[[int], Mapping[str, object]] | None = None,
) -> ReportExamples:
    """Returns the confusion matrix and the mistakes in which the label is the least probable.

    Args:
        model: Maps images to logits [batch, classes].
        batches: As `find_mistakes` takes them, with images as features.
        names: The names of the classes.
        total: The number of examples of the dataset; None if unknown.
        place: Returns where an example is stored, by its number.
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
        captions=[_caption(mistake, names, place) for mistake in mistakes.worst],
    )


def _caption(
    mistake: Mistake,
    names: Sequence[str],
    place: Callable[[int], Mapping[str, object]] | None,
) -> str:
    label, predicted = mistake.classes(names)
    known = {} if place is None else place(mistake.number)
    where = ", ".join(starmap(_place_text, known.items())) or f"example {mistake.number:,}"
    return f"{label} → {predicted} {mistake.probability:.2f}\n{where}"


def _place_text(name: str, value: object) -> str:
    """Returns a part of a place. Of the path of an image, its directory is often its class."""
    if name == "file":
        return "/".join(str(value).split("/")[-2:])
    return str(value) if isinstance(value, str) else f"{name} {value}"
