"""An inspection of an experiment, and tables of layers and tensors. Does not import TensorFlow."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from orbit_runner.errors import format_count
from orbit_runner.inspection.scale import BANDWIDTH_GBIT, LATENCY_SECONDS
from orbit_runner.reporting.document import (
    Chart,
    Part,
    Picture,
    Pictures,
    Section,
    Series,
    Table,
    Text,
    limited_examples,
)
from orbit_runner.reporting.numbers import (
    bytes_text,
    flops_text,
    format_duration,
    number_or_dash,
    shape_text,
    time_text,
)
from orbit_runner.step.results import LayerRow, TensorSummary, forward_flops, totals

if TYPE_CHECKING:
    import numpy as np

    from orbit_runner.data.tables.summary import TableSummary
    from orbit_runner.inspection.experiment import Batch, Inspection
    from orbit_runner.inspection.scale import Scale
    from orbit_runner.inspection.schedule import Schedule
    from orbit_runner.step.batches import ReplayedStep

_COLUMN_HEAD = (
    "column", "role", "kind", "missing", "distinct", "min", "max", "mean", "most frequent",
)  # fmt: skip
_MOST_PICTURES = 64

Pairs = list[tuple[str, str]]


def inspection_sections(inspection: Inspection) -> Iterator[Section]:
    """Yields the sections of an inspection."""
    yield Section("layers", [layer_table(inspection.layers)])
    yield Section("model", [total_table(inspection.layers, inspection.step_flops)])
    weights = [(name, f"{weight:.4g}") for name, weight in inspection.loss_by_class.items()]
    yield Section("class weights in the loss", [Table(weights, right=[1])])
    if inspection.table is not None:
        yield from _table_sections(inspection.table)
    place = f"one of {inspection.replicas} replicas" if inspection.replicas > 1 else ""
    suffix = place and f" of {place}"
    for name, batch in inspection.batches.items():
        yield Section(f"{name} batch{suffix}", [*_batch(batch)])
    yield Section(
        f"memory of a training step{suffix}", [Table(_memory_rows(inspection), right=[1])]
    )
    yield Section("schedule", [*_schedule(inspection.schedule)])
    yield Section("warnings", [Text(text, "bad") for text in inspection.warnings])
    if inspection.measured is not None:
        yield Section(f"measured{place and f' on {place}'}", [Table(_measured_rows(inspection))])
    if inspection.scale is not None:
        yield _scale_section(inspection.scale)


_READING = {
    "memory": "each worker reads them once, at the start",
    "own": "a worker reads those of its own examples",
    "all": "a worker reads all records in each epoch, and decodes only its own",
}


def _scale_section(scale: Scale) -> Section:
    request = scale.request
    workers = format_count(request.workers, "worker")
    gpus = format_count(request.gpus_per_worker, "GPU")
    assumed = (
        f"computed, not measured, for multi_worker_mirrored; assumed: {BANDWIDTH_GBIT:g} "
        "Gbit/s in each direction on the link of a worker, and "
        f"{time_text(LATENCY_SECONDS)} for a message to arrive"
    )
    ring = f"2(n-1) · latency + 2(n-1)/n · gradients / bandwidth, n = {scale.replicas:,} replicas"
    often = (
        f"every {scale.checkpoint_interval:,} steps" if scale.checkpoint_interval else "at the end"
    )
    read = f"{bytes_text(scale.file_bytes_per_step)} a step"
    files = bytes_text(scale.file_bytes) if scale.file_reading == "memory" else read
    rows: list[tuple[str, ...]] = [
        (
            "examples of a step",
            number_or_dash(scale.examples_per_step),
            f"{number_or_dash(scale.examples_per_replica)} on each replica, "
            f"{number_or_dash(scale.examples_per_worker)} on each worker",
        ),
        ("steps of an epoch", number_or_dash(scale.steps_per_epoch), ""),
        ("gradients", bytes_text(scale.gradient_bytes), "each replica sends them in each step"),
        ("ring all-reduce", time_text(scale.ring_seconds), ring),
        ("files", files, _READING.get(scale.file_reading, "")),
        ("checkpoint", bytes_text(scale.checkpoint_bytes), f"written by worker 0 {often}"),
    ]
    known = [row for row in rows if row[0] != "files" or scale.file_bytes]
    table = Table(known, right=[1], sentences=True)
    return Section(f"rehearsal: {workers} × {gpus}", [Text(assumed), Section("", [table])])


def replayed_section(step: ReplayedStep, name: str, most: int | None) -> Section:
    """Returns a step whose batch the input pipeline made.

    Args:
        step: The step.
        name: The name of the experiment.
        most: The number of rows to show; None for all.
    """
    count = len(step.rows)
    return Section(
        f"step {step.step:,} of {name}: {count:,} examples, replayed from step 1",
        [
            *limited_examples(step.rows[:most], count),
            *batch_parts(step.tensors, step.text),
        ],
    )


def layer_table(layers: Sequence[LayerRow]) -> Table:
    """Returns the table of layers."""
    was_traced = _was_traced(layers)
    return Table(
        [
            (
                *(row.name, row.kind, shape_text(row.shape), f"{row.parameters:,}"),
                flops_text(row.flops if was_traced else None),
            )
            for row in layers
        ],
        head=("layer", "type", "output", "parameters", "FLOPs"),
        right=(-2, -1),
        fits=True,
    )


def total_table(layers: Sequence[LayerRow], step_flops: float | None) -> Table:
    """Returns the totals of the layers, and the operations of a training step."""
    trainable, others = totals(layers)
    forward = forward_flops(layers) if _was_traced(layers) else None
    return Table(
        [
            ("trainable parameters", f"{trainable:,}"),
            ("other parameters", f"{others:,}"),
            ("FLOPs of the forward pass", f"{flops_text(forward)} per example"),
            ("FLOPs of a training step", flops_text(step_flops)),
        ]
    )


def batch_parts(
    tensors: Sequence[TensorSummary],
    sentences: Sequence[tuple[str, str]],
    pictures: Sequence[Picture] = (),
) -> list[Part]:
    """Returns pictures of a batch, the table of its tensors, and its token IDs as text."""
    return [Pictures(pictures), tensor_table(tensors), Table(sentences, sentences=True)]


def encode_pictures(images: np.ndarray | None, captions: Iterable[str], most: int) -> list[Picture]:
    """Returns the first pictures as small PNG files; captions may be missing."""
    if images is None or not len(images):
        return []
    from orbit_runner.inspection.picture_sheet import thumbnails

    files = thumbnails(images[:most])
    texts = itertools.chain(captions, itertools.repeat(""))
    return [
        Picture(base64.b64encode(png).decode(), text)
        for png, text in zip(files, texts, strict=False)
    ]


def tensor_table(tensors: Sequence[TensorSummary]) -> Table:
    """Returns the table of the tensors of a batch; with values that are not finite, if any are."""
    counts = {"NaN": [row.nan for row in tensors], "infinite": [row.infinite for row in tensors]}
    counts = {name: numbers for name, numbers in counts.items() if any(numbers)}
    return Table(
        [
            (
                *(tensor.name, shape_text(tensor.shape), tensor.dtype),
                *map(number_or_dash, (tensor.low, tensor.high, tensor.mean)),
                *(f"{numbers[row]:,}" for numbers in counts.values()),
            )
            for row, tensor in enumerate(tensors)
        ],
        head=("tensor", "shape", "type", "min", "max", "mean", *counts),
        right=range(3, 6 + len(counts)),
        fits=True,
    )


def _was_traced(layers: Sequence[LayerRow]) -> bool:
    return any(row.shape is not None for row in layers)


def _table_sections(summary: TableSummary) -> Iterator[Section]:
    for name, columns in summary.columns.items():
        rows = [
            (
                column.name,
                column.role,
                column.kind,
                f"{column.missing:,}",
                f"{column.distinct:,}",
                *map(number_or_dash, (column.low, column.high, column.mean)),
                column.range or ", ".join(f"{text} ({n:,})" for text, n in column.top) or "-",
            )
            for column in columns
        ]
        title = f"table of {name}: {summary.rows[name]:,} rows"
        yield Section(title, [Table(rows, head=_COLUMN_HEAD, fits=True)])
    yield Section("what is not used", [Text(line) for line in summary.left_out])


def _batch(batch: Batch) -> Iterator[Part]:
    if batch.problem:
        yield Text(f"none: {batch.problem}", "bad")
        return
    pictures = encode_pictures(batch.images, batch.labels, _MOST_PICTURES)
    yield from batch_parts(batch.tensors, batch.sentences, pictures)


def _memory_rows(inspection: Inspection) -> Pairs:
    """Returns the sizes of what a step needs."""
    memory = inspection.memory
    sizes: dict[str, int | None] = {
        "weights": memory.weights,
        "variables of the optimizer": memory.optimizer,
    }
    if memory.average:
        sizes["average of the weights"] = memory.average
    sizes |= {"gradients": memory.gradients, "input batch": memory.inputs}
    return [(name, bytes_text(size)) for name, size in sizes.items()]


def _schedule(schedule: Schedule | str) -> Iterator[Part]:
    if isinstance(schedule, str):
        yield Text(f"unknown: {schedule}", "bad")
        return
    batches = schedule.validation_steps
    size = f", of {batches:,} batch{'es' if batches != 1 else ''} each" if batches else ""
    rows: Pairs = [
        ("steps", f"{schedule.train_steps:,}"),
        ("epochs", number_or_dash(schedule.epochs)),
        ("examples", number_or_dash(schedule.examples and round(schedule.examples))),
        ("evaluations", f"{schedule.evaluations:,}{size}"),
        ("checkpoints", f"{schedule.checkpoints:,}"),
    ]
    for name in schedule.rates:
        marks = schedule.landmarks(name)
        texts = [f"{kind} {rate:.4g} (step {step:,})" for kind, (step, rate) in marks.items()]
        rows.append((name.replace("_", " "), ", ".join(texts)))
    yield Table(rows)
    for name, curve in schedule.rates.items():
        yield Chart(name.replace("_", " "), [Series(name, curve)])


def _measured_rows(inspection: Inspection) -> Pairs:
    measured = inspection.measured
    assert measured is not None
    rows: Pairs = [
        ("building", f"{measured.build_seconds:.1f} s"),
        ("first step, with tracing", f"{measured.trace_seconds:.1f} s"),
        ("steps/s", f"{number_or_dash(measured.steps_per_second)}, over {measured.steps:,} steps"),
    ]
    if measured.evaluation_seconds is not None:
        rows.append(("an evaluation", f"{measured.evaluation_seconds:.2f} s"))
    if measured.run_seconds is not None:
        # The number of batches of a stream is unknown, and so is the time of an evaluation.
        schedule = inspection.schedule
        lacks = not isinstance(schedule, str) and schedule.evaluations
        is_whole = measured.evaluation_seconds is not None or not lacks
        name = "the whole run, estimated" if is_whole else "the run without evaluations, estimated"
        rows.append((name, format_duration(measured.run_seconds)))
    return rows
