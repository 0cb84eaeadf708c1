"""An inspection of an experiment as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbit_runner.inspection.batches import TensorSummary
from orbit_runner.inspection.experiment import Batch, Inspection
from orbit_runner.inspection.layers import LayerRow, forward_flops, totals
from orbit_runner.inspection.schedule import Schedule
from orbit_runner.reporting.comparison_text import draw_curves
from orbit_runner.reporting.numbers import duration, number_or_dash
from orbit_runner.state.layer_table import format_table

Rows = list[tuple[str, ...]]
LAYER_HEAD = ("layer", "type", "output", "parameters", "FLOPs")
TENSOR_HEAD = ("tensor", "shape", "type", "min", "max", "mean")
_NUMBERS = 2  # Columns at the end of the table of layers that are aligned to the right.


def format_inspection(found: Inspection, width: int) -> Iterator[str]:
    """Yields the lines of an inspection.

    Args:
        found: The inspection.
        width: The width of the terminal, in characters.
    """
    rest = width - sum(max(len(row[n]) for row in layer_rows(found)) + 2 for n in (2, 3, 4))
    name = max(12, min(max(len(row.name) for row in found.layers), rest * 3 // 5))
    rows = [LAYER_HEAD, *layer_rows(found)]
    yield from _table(rows, (name, max(10, rest - name - 2)), right=_NUMBERS)
    yield ""
    yield from _pairs(model_rows(found))
    if found.fine_tuning:
        yield ""
        yield "fine-tuning"
        yield from format_table(found.fine_tuning)
    for title, batch in found.batches.items():
        yield ""
        yield batch_title(title, found)
        yield from _batch(batch)
    yield ""
    yield memory_title(found)
    yield from _pairs(memory_rows(found), right=True)
    yield ""
    yield "schedule"
    if isinstance(found.schedule, str):
        yield f"  unknown: {found.schedule}"
    else:
        yield from _schedule(found.schedule, width)
    if found.measured is not None:
        yield ""
        yield "measured"
        yield from _pairs(measured_rows(found))


def layer_rows(found: Inspection) -> Rows:
    """Returns the table of layers as texts."""
    return [
        (row.name, row.kind, shape_text(row.shape), f"{row.parameters:,}", flops_text(row.flops))
        for row in found.layers
    ]


def model_rows(found: Inspection) -> Rows:
    """Returns the totals of the model."""
    trainable, others = totals(found.layers)
    forward = forward_flops(found.layers) if _was_traced(found.layers) else None
    return [
        ("trainable parameters", f"{trainable:,}"),
        ("other parameters", f"{others:,}"),
        ("FLOPs of the forward pass", f"{flops_text(forward)} per example"),
        ("FLOPs of a training step", flops_text(found.step_flops)),
    ]


def tensor_rows(batch: Batch) -> Rows:
    """Returns the tensors of a batch as texts."""
    return [_tensor_row(one) for one in batch.tensors]


def memory_rows(found: Inspection) -> Rows:
    """Returns the parts of the estimated memory, their sum, and the measured peak."""
    memory = found.memory
    rows: Rows = [
        ("weights", bytes_text(memory.weights)),
        ("variables of the optimizer", bytes_text(memory.optimizer)),
    ]
    if memory.average:
        rows.append(("average of the weights", bytes_text(memory.average)))
    rows += [
        ("input batch", bytes_text(memory.inputs)),
        ("activations, at the peak", bytes_text(memory.activations)),
        ("gradients and temporary tensors, at the peak", bytes_text(memory.temporary)),
        ("estimated peak", bytes_text(memory.peak)),
    ]
    if found.measured is not None:
        rows.append(("measured peak", _measured_peak(found)))
    return [*rows, ("all gradients together", bytes_text(memory.gradients))]


def schedule_rows(schedule: Schedule) -> Rows:
    """Returns what happens in a run, and the learning rates at start, peak and end."""
    rows: Rows = [
        ("steps", f"{schedule.train_steps:,}"),
        ("epochs", number_or_dash(schedule.epochs)),
        ("examples", number_or_dash(schedule.examples and round(schedule.examples))),
        ("evaluations", _evaluations(schedule)),
        ("checkpoints", f"{schedule.checkpoints:,}"),
    ]
    for name in schedule.rates:
        marks = schedule.landmarks(name)
        texts = [f"{kind} {rate:.4g} (step {step:,})" for kind, (step, rate) in marks.items()]
        rows.append((name.replace("_", " "), ", ".join(texts)))
    return rows


def measured_rows(found: Inspection) -> Rows:
    """Returns the measured times."""
    measured = found.measured
    assert measured is not None
    rows: Rows = [
        ("building", f"{measured.build_seconds:.1f} s"),
        ("first step, with tracing", f"{measured.trace_seconds:.1f} s"),
        ("steps/s", f"{number_or_dash(measured.steps_per_second)}, over {measured.steps:,} steps"),
    ]
    if measured.evaluation_seconds is not None:
        rows.append(("an evaluation", f"{measured.evaluation_seconds:.2f} s"))
    if measured.run_seconds is not None:
        rows.append(("the whole run, estimated", duration(measured.run_seconds)))
    if measured.resident_bytes is not None:
        rows.append(("largest resident set of this process", bytes_text(measured.resident_bytes)))
    return rows


def batch_title(name: str, found: Inspection) -> str:
    """Returns the heading of a batch."""
    return f"{name} batch{of_replica(found)}"


def memory_title(found: Inspection) -> str:
    """Returns the heading of the memory."""
    return f"memory of a training step{of_replica(found)}"


def of_replica(found: Inspection) -> str:
    """Returns which replica values are for, or "" if there is only one."""
    return f" of one of {found.replicas} replicas" if found.replicas > 1 else ""


def bytes_text(count: int | None) -> str:
    """Returns bytes in a readable unit, such as `1.50 MiB`."""
    if count is None:
        return "-"
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.2f} {units[0]}"


def flops_text(count: float | None) -> str:
    """Returns a number of operations in a readable unit, such as `4.72 M`."""
    if count is None:
        return "-"
    value, units = float(count), ["", " k", " M", " G", " T", " P"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        del units[0]
    return f"{value:.0f}" if not units[0] else f"{value:.2f}{units[0]}"


def shape_text(shape: Sequence[int | None] | None) -> str:
    """Returns a shape, such as `8×8×32`; `-` if it is unknown."""
    if shape is None:
        return "-"
    return "×".join("?" if size is None else str(size) for size in shape) or "scalar"


def _was_traced(rows: Sequence[LayerRow]) -> bool:
    return any(row.shape is not None for row in rows)


def _measured_peak(found: Inspection) -> str:
    measured = found.measured
    if measured is None or measured.peak_bytes is None:
        return "-"
    return f"{bytes_text(measured.peak_bytes)} on {measured.device}"


def _evaluations(schedule: Schedule) -> str:
    batches = schedule.validation_steps
    each = f", of {batches:,} batch{'es' if batches != 1 else ''} each" if batches else ""
    return f"{schedule.evaluations:,}{each}"


def _tensor_row(one: TensorSummary) -> tuple[str, ...]:
    values = (number_or_dash(value) for value in (one.low, one.high, one.mean))
    return (one.name, shape_text(one.shape), one.dtype, *values)


def _batch(batch: Batch) -> Iterator[str]:
    if batch.problem:
        yield from (f"  {line}" for line in f"none: {batch.problem}".splitlines())
        return
    yield from _table([TENSOR_HEAD, *tensor_rows(batch)], (40,), right=3)
    for name, text in batch.sentences:
        yield f"  {name}: {text}"


def _schedule(schedule: Schedule, width: int) -> Iterator[str]:
    yield from _pairs(schedule_rows(schedule))
    for name, curve in schedule.rates.items():
        yield ""
        yield from draw_curves(name.replace("_", " "), {name: curve}, [name], width)


def _pairs(rows: Rows, *, right: bool = False) -> Iterator[str]:
    size = max(len(row[0]) for row in rows)
    values = max(len(row[1].split(" on ")[0]) for row in rows) if right else 0
    for name, text in rows:
        value, on, device = text.partition(" on ") if right else (text, "", "")
        yield f"  {name:<{size}}  {value:>{values}}{on}{device}".rstrip()


def _table(rows: Rows, most: Sequence[int], *, right: int) -> Iterator[str]:
    """Yields aligned lines; `most` are the widths of the first columns, `right` the last ones."""
    columns = len(rows[0])
    limits = [*most, *[40] * (columns - len(most))]
    cells = [[_cut(text, limit) for text, limit in zip(row, limits, strict=True)] for row in rows]
    sizes = [max(len(row[n]) for row in cells) for n in range(columns)]
    for row in cells:
        texts = [
            f"{text:>{size}}" if n >= columns - right else f"{text:<{size}}"
            for n, (text, size) in enumerate(zip(row, sizes, strict=True))
        ]
        yield f"  {'  '.join(texts)}".rstrip()


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"
