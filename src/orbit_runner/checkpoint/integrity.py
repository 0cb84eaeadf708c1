"""Checks the tensors of a checkpoint if its record does not say that they are finite."""

from __future__ import annotations

from collections.abc import Collection

import tensorflow as tf

from orbit_runner.checkpoint.discovery import CheckpointLocation
from orbit_runner.checkpoint.fingerprint import CheckpointContent, has_object_graph
from orbit_runner.checkpoint.finite_check import describe_non_finite
from orbit_runner.errors import first_line

# What TensorFlow raises for files that it cannot read or parse.
READ_ERRORS = (OSError, ValueError, IndexError, RuntimeError, tf.errors.OpError)


def content_problem(place: CheckpointLocation, known: Collection[str] = ()) -> str:
    """Returns why the tensors of a checkpoint cannot be used, such as `is damaged: …`, or "".

    The files of the checkpoint must be intact. Reads nothing if the record says that the tensors
    were finite when they were written. `known` are the variables that may be non-finite.
    """
    try:
        record = place.folder.record(place.step)
        if record is not None and record.non_finite is not None:
            return ""
        prefix = place.folder.prefix(place.step)
        if not has_object_graph(prefix):
            return ""  # Restoring it raises an error that explains why it cannot be used.
        content = CheckpointContent(prefix)
        saved_at = content.global_step()
        if saved_at not in (None, place.step):
            return f"is damaged: it contains step {saved_at}: its files were renamed or copied"
        found = content.find_non_finite()
    except READ_ERRORS as error:
        return f"is damaged: it cannot be read: {first_line(error)}"
    found = [one for one in found if one.name not in known]
    return f"has NaN or infinite values: {describe_non_finite(found)}" if found else ""
