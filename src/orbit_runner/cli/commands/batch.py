"""`runner batch`: shows the examples of a training step, or the steps of an example."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.cli.command import SECTIONS, Command, emit
from orbit_runner.cli.flags.config_flags import (
    CONFIG_FLAGS,
    PROGRESS_FLAGS,
    TRAINED,
    is_step_number,
    parse_step,
    resolve_experiment,
    run_of,
    tensorflow_scope,
)
from orbit_runner.cli.flags.rows import Group, flag, switch
from orbit_runner.cli.flags.values import OUTPUT_FILE, write_flag_output
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.base import INT_MAX
from orbit_runner.errors import RunnerError, shorten
from orbit_runner.jobs.preflight import setting_error_scope
from orbit_runner.reporting.document import Section, limited_examples
from orbit_runner.reporting.examples import step_section
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.step.examples import TrainingOrder
from orbit_runner.utils.streams import print_message

if TYPE_CHECKING:
    import numpy as np

    from orbit_runner.utils.types import JsonObject

_DESCRIPTION = """\
Show the examples of a training step, before or after it runs: index, file, record or line,
and label. The order is computed from the seed, without TensorFlow; pipelines of Model Garden
and of tasks that do not declare their order are replayed.

With --example, list the steps in which an example was or will be used instead, with epoch, position
and row. The order of examples is inverted, not searched, so that it takes no longer for large
datasets.

Step N is the step after which `global_step` is N, as in the records of a run. Steps, epochs and
lines of files are numbered from 1; rows, examples, positions and records from 0."""
_ROWS = 16


def main(flags: argparse.Namespace) -> int:
    """Prints the examples of the requested steps, or the steps of an example. Returns 0."""
    resolved = resolve_experiment(flags, "RUN|EXPERIMENT")
    _check_flags(flags)
    with setting_error_scope(resolved):
        order = TrainingOrder(resolved.config, run_of(flags))
        order.check_data(flags.step[0] if flags.step else 1)
        if flags.example is not None:
            return _print_occurrences(flags, order)
        if order.examples(order.recoveries(flags.step[0])) is None:
            values, sections = _replayed_steps(flags, resolved, order)
        else:
            values, sections = _computed_steps(flags, resolved, order)
        return emit(flags, values if len(values) > 1 else values[0], section_lines(sections))


def _check_flags(flags: argparse.Namespace) -> None:
    """Raises `RunnerError` if flags do not belong together."""
    other = "--step" if flags.example is None else "--example"
    for name in ("until",) if flags.example is None else ("text", "images"):
        if getattr(flags, name):
            raise RunnerError(
                f"has no effect with {other}; remove it", path=f"--{name}", code="no-effect"
            )
    if flags.images and flags.step[0] != flags.step[1]:
        raise RunnerError(
            "shows one step, but --step has several\nuse --step=N", path="--images", code="conflict"
        )


def _parse_steps(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    ends = (first, last if colon else first)
    if not all(is_step_number(end) for end in ends) or int(ends[0]) > int(ends[1]):
        raise argparse.ArgumentTypeError(
            f"got {shorten(text)!r}, allowed: N or N:M with 1 <= N <= M <= {INT_MAX}"
        )
    return int(ends[0]), int(ends[1])


def _computed_steps(
    flags: argparse.Namespace, resolved: ResolvedConfig, order: TrainingOrder
) -> tuple[list[JsonObject], list[Section]]:
    """Returns the steps for JSON and as sections, by the order that is computed."""
    first, last = flags.step
    if flags.images:
        _write_images(flags, resolved, order)
    most = None if flags.all or flags.json else _ROWS
    values, sections = [], []
    for number in range(first, last + 1):
        step = order.step(number, most=most, text=flags.text)
        fields = dataclasses.asdict(step)
        batch_size, rows = fields.pop("rows"), fields.pop("chosen")
        values.append(fields | {"order": "computed", "batch_size": batch_size, "rows": rows})
        examples = order.examples(step.recoveries)
        assert examples is not None
        sections.append(step_section(step, str(resolved.config.name), examples.source))
    return values, sections


def _replayed_steps(
    flags: argparse.Namespace, resolved: ResolvedConfig, order: TrainingOrder
) -> tuple[list[JsonObject], list[Section]]:
    """Returns the batches that the pipeline makes, whose examples have no other names."""
    first, last = flags.step
    for setting, reason in (
        (resolved.config.trainer.replay_inputs, "trainer.replay_inputs is false: a resumed run"),
        (resolved.config.runtime.deterministic, "runtime.deterministic is false: a run"),
    ):
        if not setting:
            print_message(f"note: {reason} may get other batches")
    with _pipeline_scope(flags, resolved, order, first, last) as (task, batches):
        from orbit_runner.step.batches import replayed_step

        steps = [replayed_step(task, step, batch) for step, batch in enumerate(batches, first)]
    if flags.images:
        _write_picture_sheet(flags, steps[0].images)
    from orbit_runner.reporting.inspection import replayed_section

    most = None if flags.all else _ROWS
    printed_steps = [step if flags.text else dataclasses.replace(step, text=()) for step in steps]
    name = str(resolved.config.name)
    return [step.as_dict() for step in steps], [
        replayed_section(step, name, most) for step in printed_steps
    ]


def _write_images(
    flags: argparse.Namespace, resolved: ResolvedConfig, order: TrainingOrder
) -> None:
    step = flags.step[0]
    with _pipeline_scope(flags, resolved, order, step, step) as (_, batches):
        from orbit_runner.step.batches import pictures

        images, _ = pictures(next(batches)) or (None, [])
    _write_picture_sheet(flags, images)


def _write_picture_sheet(flags: argparse.Namespace, images: np.ndarray | None) -> None:
    """Writes the images in the order of the rows."""
    from orbit_runner.inspection.picture_sheet import encode_png, picture_sheet

    if images is None:
        raise RunnerError(
            "the batch has no images\nremove the flag", path="--images", code="bad-data"
        )
    sheet = picture_sheet(images, most=len(images) if flags.all else 64)
    write_flag_output("--images", flags.images, encode_png(sheet))


def _print_occurrences(flags: argparse.Namespace, order: TrainingOrder) -> int:
    """Prints the steps of the example that `--example` names. Returns 0."""
    examples = order.examples()
    if examples is None:
        raise RunnerError(
            "the order of these examples is only known by running the input "
            "pipeline\nuse --step to see the batch of a step",
            path="RUN|EXPERIMENT",
            code="not-repeatable",
        )
    number = examples.find(flags.example)
    is_excluded = number in order.excluded_examples()
    until = flags.until or order.last_step()
    if not until:
        raise RunnerError(
            "is not set, and the experiment has no trainer.train_steps",
            path="--until",
            code="not-set",
        )
    occurrences = order.occurrences(number, until)
    # What does not change between steps: where the example comes from, and its label.
    first = occurrences[0] if occurrences else None
    about = order.describe_example(first["step"], first["row"]) if first else {}
    values = {"example": number, "until": until, "reached": order.reached_step, **about}
    values |= {"excluded": True} if is_excluded else {}
    title = ", ".join(f"{name} {value}" for name, value in about.items())
    lines = [f"example {number:,} of {examples.source}{f' ({title})' if title else ''}"]
    if is_excluded:
        lines.append("in no step: task.train_data.exclude leaves it out")
    else:
        numbers = _format_counts(order, occurrences)
        counts = f"in {len(occurrences):,} of the steps 1 to {until:,}{numbers}"
        printed = occurrences if flags.all else occurrences[:_ROWS]
        table = limited_examples(printed, len(occurrences))
        lines += section_lines([Section(counts, table)])
    return emit(flags, values | {"occurrences": occurrences}, lines)


def _format_counts(order: TrainingOrder, occurrences: Sequence[JsonObject]) -> str:
    if order.run is None:
        return ""
    past = sum(occurrence["step"] <= order.reached_step for occurrence in occurrences)
    return f": {past:,} up to step {order.reached_step:,}, {len(occurrences) - past:,} after it"


@contextlib.contextmanager
def _pipeline_scope(
    flags: argparse.Namespace, resolved: ResolvedConfig, order: TrainingOrder, first: int, last: int
) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Yields the task and the batches of steps from its input pipeline; imports TensorFlow."""
    title = f"batch {resolved.config.name}"
    with tensorflow_scope(flags, resolved, "orbit_runner.step.batches", title):
        from orbit_runner.step.batches import step_batches

        recoveries = {order.recoveries(step) for step in (first, last)}
        if len(recoveries) > 1:
            raise RunnerError(
                f"the run returned to a checkpoint between steps {first} and {last}, which "
                "changed the seed\nshow the steps before and after that separately",
                path="--step",
                code="not-repeatable",
            )
        yield step_batches(
            order.config, order.run, first=first, last=last, recoveries=recoveries.pop()
        )


_FLAGS = (
    TRAINED,
    Group(
        [
            flag("--step=N[:M]", "the step, or the first and the last step", type=_parse_steps),
            flag(
                "--example=ID",
                "the example: an index or a place as --step prints it, FILE:RECORD, FILE:LINE, "
                "FILE:ROW, FILE:INDEX, the path of an image, or USER/ITEM",
            ),
        ],
        required=True,
    ),
    flag(
        "--until=STEP",
        "with --example: the last step to list; by default the last step of the run",
        type=parse_step,
    ),
    switch("--all", f"print all rows; by default {_ROWS}"),
    switch("--text", "add the sentences that the model reads"),
    flag(
        "--images",
        "write the images as the network gets them, in the order of the rows, to a PNG file",
        type=OUTPUT_FILE,
    ),
    switch("--json", "print JSON with all rows"),
    *PROGRESS_FLAGS,
    *CONFIG_FLAGS,
)
COMMAND = Command(
    "batch",
    _DESCRIPTION,
    _FLAGS,
    ["digits --step=1", "digits --example=0 --until=1000"],
    main,
    settings=SECTIONS,
)
