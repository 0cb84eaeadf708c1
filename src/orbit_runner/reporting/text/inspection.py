"""An inspection of an experiment as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbit_runner.data.tables.summary import ColumnSummary, EqualRows, TableSummary
from orbit_runner.inspection.experiment import Batch, Inspection
from orbit_runner.inspection.schedule import Schedule
from orbit_runner.reporting.numbers import bytes_text, format_duration, number_or_dash
from orbit_runner.reporting.text.comparison import draw_curves
from orbit_runner.reporting.text.layers import (
    LAYER_HEAD,
    TENSOR_HEAD,
    Rows,
    layer_rows,
    tensor_rows,
    total_rows,
)
from orbit_runner.reporting.text.scale import format_scale
from orbit_runner.reporting.text.step import format_rows, more_rows
from orbit_runner.state.layer_table import format_table
from orbit_runner.step.batches import ReplayedStep

LEFT_OUT = "what is not used"
COLUMN_HEAD = (
    "column", "role", "kind", "missing", "distinct", "min", "max", "mean", "most frequent",
)  # fmt: skip
WARNINGS = "warnings"
CLASS_WEIGHTS = "class weights in the loss"
_NUMBERS = 2  # Columns at the end of the table of layers that are aligned to the right.


def format_inspection(found: Inspection, width: int) -> Iterator[str]:
    """Yields the lines of an inspection.

    Args:
        found: The inspection.
        width: The width of the terminal, in characters.
    """
    layers = layer_rows(found.layers)
    rest = width - sum(max(len(row[n]) for row in layers) + 2 for n in (2, 3, 4))
    name = max(12, min(max(len(row.name) for row in found.layers), rest * 3 // 5))
    rows = [LAYER_HEAD, *layers]
    yield from _table(rows, (name, max(10, rest - name - 2)), right=_NUMBERS)
    yield ""
    yield from _pairs(total_rows(found.layers, found.step_flops))
    if found.fine_tuning:
        yield ""
        yield "fine-tuning"
        yield from format_table(found.fine_tuning)
    if found.loss_by_class:
        yield ""
        yield CLASS_WEIGHTS
        yield from _pairs(class_weight_rows(found), right=True)
    if found.table is not None:
        yield from _table_summary(found.table)
    for section, facts in found.data.items():
        yield ""
        yield data_title(section)
        yield from _pairs([*facts])
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
    if found.warnings:
        yield ""
        yield WARNINGS
        yield from (f"  {text}" for text in found.warnings)
    if found.measured is not None:
        yield ""
        yield "measured"
        yield from _pairs(measured_rows(found))
    if found.scale is not None:
        yield ""
        yield from format_scale(found.scale, width)


def format_replayed(found: ReplayedStep, name: str, most: int | None) -> Iterator[str]:
    """Yields the lines of a step whose batch the input pipeline made.

    Args:
        found: The step.
        name: The name of the experiment.
        most: The number of rows to show; None for all.
    """
    yield f"step {found.step:,} of {name}: {len(found.rows):,} examples, replayed from step 1"
    shown = found.rows[:most]
    yield from format_rows(shown)
    yield from more_rows(len(found.rows) - len(shown))
    yield from _table([TENSOR_HEAD, *tensor_rows(found.tensors)], (40,), right=3)
    yield from (f"  {tensor}: {text}" for tensor, text in found.text)


def class_weight_rows(found: Inspection) -> Rows:
    """Returns the weight of each class in the loss."""
    return [(name, f"{weight:.4g}") for name, weight in found.loss_by_class.items()]


def data_title(section: str) -> str:
    """Returns the title of what the files of a section contain."""
    return f"files of {section}"


def table_title(name: str, summary: TableSummary) -> str:
    """Returns the title of the columns of a section."""
    return f"table of {name}: {summary.rows[name]:,} rows"


def column_rows(columns: Sequence[ColumnSummary]) -> Rows:
    """Returns the columns of a table as texts."""
    return [
        (
            one.name,
            one.role,
            one.kind,
            f"{one.missing:,}",
            f"{one.distinct:,}",
            *(number_or_dash(value) for value in (one.low, one.high, one.mean)),
            ", ".join(f"{text} ({count:,})" for text, count in one.top) or "-",
        )
        for one in columns
    ]


def equal_row_rows(summary: TableSummary) -> Rows:
    """Returns the equal rows within the sections and between them."""
    first, second = summary.rows
    texts = {f"repeated in {name}": rows for name, rows in summary.repeated.items()}
    texts[f"of {second} also in {first}"] = summary.leaked
    return [(name, _equal_rows(rows)) for name, rows in texts.items()]


def _equal_rows(found: EqualRows) -> str:
    examples = "; ".join(f"{left} = {right}" for left, right in found.examples)
    return f"{found.rows:,}: {examples}" if examples else "0"


def memory_rows(found: Inspection) -> Rows:
    """Returns the sizes of what a step needs, and the measured peak."""
    memory = found.memory
    rows: Rows = [
        ("weights", bytes_text(memory.weights)),
        ("variables of the optimizer", bytes_text(memory.optimizer)),
    ]
    if memory.average:
        rows.append(("average of the weights", bytes_text(memory.average)))
    rows += [
        ("gradients", bytes_text(memory.gradients)),
        ("input batch", bytes_text(memory.inputs)),
    ]
    if found.measured is None:
        return [*rows, ("peak, measured with --measure", "-")]
    return [*rows, ("peak, measured in a process of its own", _measured_peak(found))]


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
        rows.append(("the whole run, estimated", format_duration(measured.run_seconds)))
    if measured.resident_bytes is not None:
        rows.append(("largest resident set of this process", bytes_text(measured.resident_bytes)))
    return rows


def batch_title(name: str, found: Inspection) -> str:
    """Returns the heading of a batch."""
    return f"{name} batch{replica_suffix(found)}"


def memory_title(found: Inspection) -> str:
    """Returns the heading of the memory."""
    return f"memory of a training step{replica_suffix(found)}"


def replica_suffix(found: Inspection) -> str:
    """Returns which replica values are for, or "" if there is only one."""
    return f" of one of {found.replicas} replicas" if found.replicas > 1 else ""


def _measured_peak(found: Inspection) -> str:
    measured = found.measured
    if measured is None or measured.peak_bytes is None:
        return "-"
    return f"{bytes_text(measured.peak_bytes)} on {measured.device}"


def _evaluations(schedule: Schedule) -> str:
    batches = schedule.validation_steps
    each = f", of {batches:,} batch{'es' if batches != 1 else ''} each" if batches else ""
    return f"{schedule.evaluations:,}{each}"


def _table_summary(summary: TableSummary) -> Iterator[str]:
    for name, columns in summary.columns.items():
        yield ""
        yield table_title(name, summary)
        yield from _table([COLUMN_HEAD, *column_rows(columns)], (30,), right=0)
    if summary.left_out:
        yield ""
        yield LEFT_OUT
        yield from (f"  {line}" for line in summary.left_out)
    yield ""
    yield "rows with equal features"
    yield from _pairs(equal_row_rows(summary))


def _batch(batch: Batch) -> Iterator[str]:
    if batch.problem:
        yield from (f"  {line}" for line in f"none: {batch.problem}".splitlines())
        return
    yield from _table([TENSOR_HEAD, *tensor_rows(batch.tensors)], (40,), right=3)
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
