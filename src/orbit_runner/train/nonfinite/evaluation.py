"""Reports evaluations whose loss or metrics are NaN or infinite, with the examples that cause it.

After such an evaluation, the run evaluates the batches once more, one by one, and halves those that
are not finite until single examples remain. So it works for every task and every metric.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.checkpoint.finite_check import describe_non_finite, non_finite_variables
from orbit_runner.distribute.process_group import is_asynchronous
from orbit_runner.errors import RunnerError, SettingError, first_line
from orbit_runner.model_garden.task_adapter import has_services
from orbit_runner.train.callbacks.base import Callback, EvaluatedRun, Logs, RunView
from orbit_runner.train.evaluator import LOSS, Evaluator
from orbit_runner.train.inputs.distribute import leading_size, own_batches
from orbit_runner.utils.log import note, phase
from orbit_runner.utils.metrics import scalars

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


_MAX_EXAMPLES = 8
_SECONDS = 60.0  # The search ends after this time.


class NonFiniteEvaluations(Callback):
    """Warns of an evaluation that is not finite, and names the examples that cause it."""

    def __init__(self) -> None:
        self._names: Set[str] = frozenset()  # the metrics that were not finite
        self._searched: int | None = None  # the step at which their examples were searched

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Warns if a result is not finite. Searches the examples if other results were finite."""
        names = non_finite_values(logs).keys()
        if not names or not run.is_chief:
            return
        searched = self._searched if self._names == names else None
        if searched is None:
            self._names = names
            self._searched = run.step
        for text in describe_non_finite_evaluation(run, logs, searched):
            note(text)


def non_finite_values(logs: Logs) -> dict[str, float]:
    """Returns the results of an evaluation that are NaN or infinite, by name."""
    return {name: value for name, value in scalars(logs).items() if not math.isfinite(value)}


def describe_non_finite_evaluation(
    run: EvaluatedRun, logs: Logs, searched: int | None = None
) -> Iterator[str]:
    """Yields a warning if results are not finite, with the examples that cause it.

    They are not searched if they were at the step `searched`, to which the warning refers.
    """
    values = non_finite_values(logs)
    if not values:
        return
    results = ", ".join(f"{name} is {value:g}" for name, value in values.items())
    lines = [f"warning: the evaluation at step {run.step} is not finite: {results}"]
    if searched is None:
        lines += _causes(run, values)
    else:
        lines.append(f"the same metrics as at step {searched}, see there")
    yield "\n  ".join(lines)


def _causes(run: EvaluatedRun, values: Mapping[str, float]) -> list[str]:
    """Returns lines about the cause."""
    ema = run.state.ema
    with ema.applied_scope() if ema is not None else contextlib.nullcontext():
        weights = describe_non_finite(non_finite_variables(run.model.trainable_variables))
    if weights:
        return [f"the weights are not finite: {weights}"]
    problem = _problem(run)
    if problem:
        return [f"the examples that cause it are not known: {problem}"]
    phase("searching the examples that cause it")
    try:
        return _format_causes(run, values, _Search(run, values).find())
    except RunnerError as error:
        return [f"the examples that cause it are not known: {first_line(error)}"]


def _problem(run: EvaluatedRun) -> str:
    """Returns why the examples cannot be searched in this process, or ""."""
    if run.workers.count > 1:
        return f"{run.workers.count} processes evaluate together"
    if is_asynchronous(run.strategy):
        return "parameter servers hold the weights"
    if isinstance(run.strategy, tf.distribute.TPUStrategy):
        return "the model is on TPUs"
    if has_services(run.config):
        return "tf.data services make the batches"
    if not isinstance(run.evaluator, Evaluator):
        return "several tasks are evaluated"
    return ""


def _batch_evaluator(run: EvaluatedRun) -> Evaluator:
    """Returns an evaluator that divides no batch; it is that of the run, if that divides none."""
    if not run.config.runtime.logical_replicas:
        assert isinstance(run.evaluator, Evaluator)
        return run.evaluator
    with run.strategy.scope():
        return Evaluator(
            run.adapter.task,
            run.state,
            run.strategy,
            lambda: (),
            seed=run.config.runtime.seed,
            use_tf_function=False,
            use_tf_while_loop=False,
        )


@dataclasses.dataclass(frozen=True)
class _BadExample:
    index: int  # the number of examples before it
    batch: int  # the number of its batch, from 0
    row: int  # its row of the batch, from 0
    inputs: Tensors  # the example as a batch of one row


@dataclasses.dataclass
class _Findings:
    examples: list[_BadExample] = dataclasses.field(default_factory=list)
    rows: int = 0  # how many rows were evaluated again
    is_complete: bool = True  # whether these were all rows
    is_divisible: bool = True  # whether all batches could be cut into rows


class _Search:
    """Searches the examples of the validation data whose results are not finite."""

    def __init__(self, run: EvaluatedRun, values: Mapping[str, float]) -> None:
        self._run = run
        self._names = [*values]
        self._evaluator = _batch_evaluator(run)
        self._end = time.monotonic() + _SECONDS
        self._found = _Findings()

    def find(self) -> _Findings:
        run = self._run
        findings = self._found
        batches = own_batches(run.adapter, run.config.runtime, run.section("validation_data"))
        limit = run.validation_steps
        for number, batch in enumerate(batches):
            if number == limit >= 0:
                break
            rows = int(leading_size(batch))
            if len(findings.examples) > _MAX_EXAMPLES or time.monotonic() > self._end:
                findings.is_complete = False
                break
            self._halve(batch, number, 0, rows)
            findings.rows += rows
        return findings

    def _halve(self, batch: Tensors, number: int, first: int, stop: int) -> None:
        """Adds the examples in a range of rows whose results are not finite."""
        findings = self._found
        inputs = _rows(batch, first, stop)
        if len(findings.examples) > _MAX_EXAMPLES or self._is_finite(inputs):
            return
        if stop - first == 1:
            findings.examples.append(_BadExample(findings.rows + first, number, first, inputs))
            return
        if not _can_be_cut(batch):
            findings.is_divisible = False
            return
        middle = (first + stop) // 2
        self._halve(batch, number, first, middle)
        self._halve(batch, number, middle, stop)

    def _is_finite(self, batch: Tensors) -> bool:
        try:
            values = scalars(self._evaluator.evaluate_batch(batch))
        except SettingError:  # It has only rows that fill a batch.
            return True
        return all(math.isfinite(values.get(name, 0.0)) for name in self._names)


def _can_be_cut(batch: Tensors) -> bool:
    rows = {tensor.shape[0] if tensor.shape.rank else None for tensor in tf.nest.flatten(batch)}
    return len(rows) == 1 and None not in rows


def _rows(batch: Tensors, first: int, stop: int) -> Tensors:
    if first == 0 and not (_can_be_cut(batch) and stop < tf.nest.flatten(batch)[0].shape[0]):
        return batch
    return tf.nest.map_structure(lambda tensor: tensor[first:stop], batch)


def _format_causes(
    run: EvaluatedRun, values: Mapping[str, float], findings: _Findings
) -> list[str]:
    if not findings.examples:
        searched = (
            "" if findings.is_complete else f" of the first {findings.rows:,}, in {_SECONDS:g} s"
        )
        if not findings.is_divisible:
            return [f"no example{searched} can be named: the batches cannot be cut into rows"]
        return [
            f"no single example{searched} causes it; the definition of the metric may give NaN, "
            "such as 0 / 0"
        ]
    indices = [example.index for example in findings.examples]
    are_all = len(indices) > _MAX_EXAMPLES or (
        findings.is_complete and len(indices) == findings.rows
    )
    if are_all and indices == [*range(len(indices))] and LOSS not in values:
        return [
            "each example alone gives it, but the loss is finite: check the definition of the "
            "metric, such as 0 / 0"
        ]
    lines = ["examples of task.validation_data that cause it:"]
    lines += [
        f"  {_describe_example(run, example)}" for example in findings.examples[:_MAX_EXAMPLES]
    ]
    if len(findings.examples) > _MAX_EXAMPLES:
        lines.append("  … and others")
    return lines


def _describe_example(run: EvaluatedRun, example: _BadExample) -> str:
    """Returns the index of an example, and its file, row and label as far as they are known."""
    place: Mapping[str, object] = {}
    # What a task of a user returns may be anything, and the evaluation must not end the run.
    with contextlib.suppress(Exception):
        place = run.adapter.describe_example(example.inputs, example.index)
    about = _format_place(place) or f"row {example.row} of batch {example.batch}"
    return f"example {example.index}: {about}"


def _format_place(place: Mapping[str, object]) -> str:
    """Returns what a task says about an example, such as `a.csv, row 3, label 1`."""
    return ", ".join(
        str(value) if name in ("file", "place") else f"{name} {value}"
        for name, value in place.items()
        if name != "offset"
    )
