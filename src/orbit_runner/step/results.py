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


class StepExamined(Exception):
    """Ends a run after a step was examined, before that step is taken."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleLoss:
    """The loss of an example.

    Attributes:
        row: The row in the global batch, from 0.
        loss: The loss; None if it could not be computed.
        error: The error that computing it raised; "" if there was none.
        about: What else is known about the example by name, such as its index and label.
    """

    row: int
    loss: float | None
    error: str = ""
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
    """A trainable variable in the step: norms, and how many values are NaN or infinite.

    `gradient_norm` is that of the whole batch, before the optimizer clips it; None if the variable
    got no gradient.
    """

    name: str
    weight_norm: float  # before the step
    gradient_norm: float | None
    update_norm: float
    non_finite_weights: int  # before the step
    non_finite_gradients: int
    non_finite_updated: int  # after the step


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstBadValue:
    """The first value that is NaN or infinite, of those that made the step fail.

    Attributes:
        layer: The path of the layer in the model, or `loss`; "" if it is in no layer.
        op: The type of the op, such as `MatMul`.
        kind: `nan`, `inf`, or `error` if the op failed.
        phase: `forward`, `backward` or `update`.
        rows: The rows of the global batch whose values are not finite; empty if not known.
        replica: The replica that computed it; None if there is only one.
        source: Where the op got values that were not finite: `batch` or `weights`; "" if its
            inputs were finite.
        message: The message of the error; "" if there was none.
    """

    layer: str
    op: str
    kind: str
    phase: str
    rows: tuple[int, ...] = ()
    replica: int | None = None
    source: str = ""
    message: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found in a step.

    Attributes:
        step: The step; `global_step` has this value after it.
        loss: The mean loss of the batch; None if the step failed before it was known.
        rows: The number of rows of the global batch.
        examples: The losses of the examples, worst first; empty if they are not known.
        losses: Where the losses of the examples come from, or why they are not known.
        variables: The trainable variables.
        first_bad: The first value that is not finite, or the op that failed; None if the loss, the
            gradients and the updated weights are finite.
        error: The error that ended the step; "" if it did not fail.
    """

    step: int
    loss: float | None
    rows: int
    examples: Sequence[ExampleLoss]
    losses: str
    variables: Sequence[VariableStep]
    first_bad: FirstBadValue | None
    error: str = ""

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
        return sorted(
            (example for example in self.examples if example.is_bad),
            key=lambda example: example.row,
        )

    def as_dict(self) -> JsonObject:
        """Returns the values for JSON, with null for NaN and infinities."""
        bad = None if self.first_bad is None else dataclasses.asdict(self.first_bad)
        values: JsonObject = to_jsonable(
            {
                "step": self.step,
                "loss": self.loss,
                "finite": self.is_finite,
                "rows": self.rows,
                "error": self.error,
                "first_bad": bad,
                "culprits": [example.row for example in self.culprits],
                "losses": self.losses,
                "examples": [example.as_dict() for example in self.examples],
                "variables": [dataclasses.asdict(variable) for variable in self.variables],
            }
        )
        return values


def sort_worst_first(examples: Sequence[ExampleLoss]) -> list[ExampleLoss]:
    """Returns examples sorted: those with bad losses, then the others by descending loss."""

    def key(example: ExampleLoss) -> tuple[bool, float, int]:
        loss = 0.0 if example.is_bad or example.loss is None else example.loss
        return not example.is_bad, -loss, example.row

    return sorted(examples, key=key)


@dataclasses.dataclass(frozen=True)
class LayerRow:
    """A row of the table of layers: a layer, or several that are shown together.

    Attributes:
        name: The name, with those of the layers that contain it.
        kind: The class, or the classes of the layers that are shown together.
        shape: The shape of the output without the batch; None if the layer was not called.
        parameters: The number of parameters, without those of earlier rows that it shares.
        trainable: The number of those that are trained.
        flops: Floating-point operations of the forward pass per example; None if unknown.
    """

    name: str
    kind: str
    shape: tuple[int | None, ...] | None
    parameters: int
    trainable: int
    flops: float | None


@dataclasses.dataclass(frozen=True)
class TensorSummary:
    """A tensor of a batch.

    Attributes:
        name: Where it is in the batch, such as `features.inputs`.
        shape: Its shape.
        dtype: The name of its data type.
        low: The smallest finite value; None if it has none.
        high: The largest one.
        mean: Their mean.
        nan: The number of values that are NaN.
        infinite: The number of infinite values.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    nan: int = 0
    infinite: int = 0


def totals(rows: Sequence[LayerRow]) -> tuple[int, int]:
    """Returns the numbers of trainable parameters and of others."""
    trained = sum(row.trainable for row in rows)
    return trained, sum(row.parameters for row in rows) - trained


def forward_flops(rows: Sequence[LayerRow]) -> float | None:
    """Returns the operations of the forward pass per example, or None if a layer's are unknown."""
    counts = [row.flops for row in rows]
    return None if None in counts else sum(count or 0 for count in counts)
