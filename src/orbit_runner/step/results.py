"""What is known of a step: results of its examination, rows of layers and tensors.

Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orbit_runner.utils.files import to_jsonable

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


# Where the losses of the examples come from.
COMPUTED_IN_STEP = "computed in the step"
COMPUTED_PER_ROW = "the loss of each row alone, on the outputs of the step"

FORWARD = "forward"
BACKWARD = "backward"
UPDATE = "update"
LOSS = "loss"  # In place of the name of a layer: the loss function of the task.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleLoss:
    """The loss of an example."""

    row: int  # in the global batch, from 0
    loss: float | None  # None if it could not be computed
    error: str = ""  # that computing it raised
    # What else is known about the example by name, such as its index and label.
    about: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @property
    def is_bad(self) -> bool:
        """Whether the loss is NaN or infinite, or could not be computed."""
        return bool(self.error) or (self.loss is not None and not math.isfinite(self.loss))

    def as_dict(self) -> JsonObject:
        """Returns the values for JSON."""
        error = {"error": self.error} if self.error else {}
        return {"row": self.row, "loss": self.loss, "is_bad": self.is_bad, **error, **self.about}


@dataclasses.dataclass(frozen=True, kw_only=True)
class VariableStep:
    """A trainable variable in the step: norms, and how many values are NaN or infinite."""

    name: str
    weight_norm: float  # before the step
    gradient_norm: float | None  # of the whole batch, before clipping; None without a gradient
    update_norm: float
    non_finite_weights: int  # before the step
    non_finite_gradients: int
    non_finite_updated: int  # after the step


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstBadValue:
    """The first value that is NaN or infinite, of those that made the step fail."""

    layer: str  # the path of the layer in the model, or `loss`; "" if it is in no layer
    op: str  # the type of the op, such as `MatMul`
    kind: str  # `nan`, `inf`, or `error` if the op failed
    phase: str  # `forward`, `backward` or `update`
    rows: tuple[int, ...] = ()  # of the global batch with such values; empty if not known
    replica: int | None = None  # that computed it; None if there is only one
    source: str = ""  # `batch` or `weights` if the op read such values there
    message: str = ""  # of the error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found in a step."""

    step: int  # `global_step` has this value after it
    loss: float | None  # the mean of the batch; None if the step failed before it was known
    rows: int  # of the global batch
    examples: Sequence[ExampleLoss]  # worst first; empty if their losses are not known
    losses: str  # where the losses of the examples come from, or why they are not known
    variables: Sequence[VariableStep]  # the trainable ones
    # The first value that is not finite, or the op that failed; None if the loss, the gradients
    # and the updated weights are finite.
    first_bad: FirstBadValue | None
    error: str = ""  # that ended the step

    @property
    def is_finite(self) -> bool:
        """Whether the step succeeded, and loss, gradients and updated weights are finite."""
        return self.first_bad is None

    @property
    def culprits(self) -> list[ExampleLoss]:
        """The examples in the rows of the first bad value; those with a bad loss if it has none."""
        rows = self.first_bad.rows if self.first_bad is not None else ()
        by_row = {example.row: example for example in self.examples}
        if rows:
            return [by_row.get(row, ExampleLoss(row=row, loss=None)) for row in rows]
        return [by_row[row] for row in sorted(by_row) if by_row[row].is_bad]

    def as_dict(self) -> JsonObject:
        """Returns the values for JSON, with null for NaN and infinities."""
        values: JsonObject = to_jsonable(
            {
                **dataclasses.asdict(self),
                "finite": self.is_finite,
                "culprits": [example.row for example in self.culprits],
                "examples": [example.as_dict() for example in self.examples],
            }
        )
        return values


def sort_worst_first(examples: Sequence[ExampleLoss]) -> list[ExampleLoss]:
    """Returns examples sorted: those with bad losses, then the others by descending loss."""
    bad = sorted((example for example in examples if example.is_bad), key=lambda bad: bad.row)
    others = (example for example in examples if not example.is_bad)
    return bad + sorted(others, key=lambda example: (-(example.loss or 0.0), example.row))


@dataclasses.dataclass(frozen=True)
class LayerRow:
    """A row of the table of layers: a layer, or several that are shown together."""

    name: str  # with those of the layers that contain it
    kind: str  # the class, or the classes of the layers that are shown together
    shape: tuple[int | None, ...] | None  # of the output without the batch; None if not called
    parameters: int  # without those of earlier rows that it shares
    trainable: int  # the number of those that are trained
    flops: float | None  # operations of the forward pass per example; None if unknown


@dataclasses.dataclass(frozen=True)
class TensorSummary:
    """A tensor of a batch, with the range and the mean of its finite values."""

    name: str  # where it is in the batch, such as `features.inputs`
    shape: tuple[int, ...]
    dtype: str
    low: float | None = None  # None if no value is finite
    high: float | None = None
    mean: float | None = None
    nan: int = 0  # the number of values that are NaN
    infinite: int = 0


def totals(rows: Sequence[LayerRow]) -> tuple[int, int]:
    """Returns the numbers of trainable parameters and of others."""
    trained = sum(row.trainable for row in rows)
    return trained, sum(row.parameters for row in rows) - trained


def forward_flops(rows: Sequence[LayerRow]) -> float | None:
    """Returns the operations of the forward pass per example, or None if a layer's are unknown."""
    counts = [row.flops for row in rows]
    return None if None in counts else sum(count or 0 for count in counts)
