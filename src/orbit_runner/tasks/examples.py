"""What tasks know about the examples of training without running a pipeline; no TensorFlow."""

from __future__ import annotations

import re
from typing import Any, Protocol

import numpy as np

from orbit_runner.data.order.step_order import StepOrder, StepRows
from orbit_runner.errors import RunnerError

_PLACE = re.compile(r"(?P<file>.+):(?P<number>\d+)")
FLAG = "--example"


class TrainingExamples(Protocol):
    """The examples of the training data.

    Attributes:
        source: The name of the data source.
        order: Which examples are in which step.
        id_help: The forms of ids that `find` accepts, for messages.
    """

    source: str
    order: StepOrder
    id_help: str

    def describe(
        self, rows: StepRows, chosen: np.ndarray, *, text: bool = False
    ) -> list[dict[str, Any]]:
        """Returns where each of some rows comes from, its label, and what was drawn for it.

        Args:
            rows: The rows of a global batch.
            chosen: The rows to describe, int64 [k].
            text: Whether to add the text of sentences.

        Returns:
            A dict per chosen row, which `json.dumps` accepts.
        """
        ...

    def find(self, text: str) -> int:
        """Returns the index of an example.

        Args:
            text: An index, or a place such as `FILE:LINE`.

        Raises:
            RunnerError: If there is no such example.
        """
        ...


def index_of(text: str, size: int) -> int | None:
    """Returns the index that a text is, or None if it is another kind of id."""
    if not text.isdecimal():
        return None
    if int(text) >= size:
        raise RunnerError(f"{FLAG}: got {text}, allowed: 0 to {size - 1}, the indices of examples")
    return int(text)


def place_of(text: str) -> tuple[str, int] | None:
    """Returns the file and the number of `FILE:NUMBER`, or None if a text is not of that form."""
    match = _PLACE.fullmatch(text)
    return (match["file"], int(match["number"])) if match else None


def is_file(path: str, asked: str) -> bool:
    """Returns whether a path is the requested one, which may lack the first directories."""
    return path == asked or path.endswith(f"/{asked.removeprefix('./')}")


def unknown_id(text: str, id_help: str, reason: str = "") -> RunnerError:
    """Returns the error for an id that is none of an example."""
    why = f", which {reason}" if reason else ""
    return RunnerError(f"{FLAG}: got {text!r}{why}\nallowed: {id_help}")
