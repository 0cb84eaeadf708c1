"""Reads the tensors of a checkpoint where no record says that they can be read and are finite."""

from __future__ import annotations

from collections.abc import Collection

import tensorflow as tf

from orbit_runner.checkpoint.discovery import Place
from orbit_runner.checkpoint.fingerprint import CheckpointContent, has_object_graph
from orbit_runner.checkpoint.finite_check import describe_non_finite
from orbit_runner.errors import first_line

# What TensorFlow raises for files that it cannot read or parse.
READ_ERRORS = (OSError, ValueError, IndexError, RuntimeError, tf.errors.OpError)


def content_problem(place: Place, known: Collection[str] = ()) -> str:
    """Returns why the tensors of a checkpoint cannot be used.

    Nothing is read where the record says that they were finite when they were written: its files
    were compared with it before.

    Args:
        place: The checkpoint, whose files are whole.
        known: The variables that may be non-finite.

    Returns:
        What is wrong, such as `is damaged: …`; "" where nothing is.
    """
    try:
        record = place.folder.record(place.step)
        if record is not None and record.non_finite is not None:
            return ""
        prefix = place.folder.prefix(place.step)
        if not has_object_graph(prefix):
            return ""  # Restoring it explains what it is.
        found = CheckpointContent(prefix).non_finite()
    except READ_ERRORS as error:
        return f"is damaged: it cannot be read: {first_line(error)}"
    found = [one for one in found if one.name not in known]
    return f"is not finite: {describe_non_finite(found)}" if found else ""
