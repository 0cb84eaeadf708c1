"""`runner seen`: lists the steps in which an example was or will be trained on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbit_runner.cli.command import Command, Parser, emit
from orbit_runner.cli.flags.config_flags import (
    add_config_flags,
    add_trained_argument,
    parse_step,
    resolve_experiment,
    run_of,
)
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.preflight import setting_error_scope
from orbit_runner.reporting.document import Section, limited_examples
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.step.examples import TrainingOrder

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_DESCRIPTION = """\
List the training steps in which an example was or will be used, with epoch, position and row. The
order of examples is inverted, not searched, so that it takes no longer for large datasets.

Step N is the step after which `global_step` is N, as in the records of a run. Steps, epochs and
lines of files are numbered from 1; rows, examples, positions and records from 0."""
_ROWS = 40


def main(flags: argparse.Namespace) -> int:
    """Prints the steps of an example. Returns 0."""
    resolved = resolve_experiment(flags, "RUN|EXPERIMENT")
    with setting_error_scope(resolved):
        order = TrainingOrder(resolved.config, run_of(flags))
        order.check_data()
        examples = order.examples()
        if examples is None:
            raise RunnerError(
                "the order of these examples is only known by running the input "
                "pipeline\nuse `runner batch` to see the batch of a step",
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
        about = _describe_example(order, occurrences)
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
    emit(flags, values | {"occurrences": occurrences}, lines)
    return 0


def _add_flags(parser: Parser) -> None:
    add_trained_argument(parser)
    parser.add_argument(
        "--example",
        required=True,
        metavar="ID",
        help="the example: an index or a place as `runner batch` prints it, FILE:RECORD, "
        "FILE:LINE, FILE:ROW, FILE:INDEX, the path of an image, or USER/ITEM",
    )
    parser.add_argument(
        "--until",
        type=parse_step,
        metavar="STEP",
        help="the last step to list; by default the last step of the run",
    )
    parser.add_argument("--all", action="store_true", help=f"print all steps; by default {_ROWS}")
    parser.add_argument("--json", action="store_true", help="print JSON with all steps")
    add_config_flags(parser)


def _describe_example(order: TrainingOrder, occurrences: Sequence[JsonObject]) -> JsonObject:
    """Returns what does not change between steps: where the example comes from, and its label."""
    if not occurrences:
        return {}
    return order.describe_example(occurrences[0]["step"], occurrences[0]["row"])


def _format_counts(order: TrainingOrder, occurrences: Sequence[JsonObject]) -> str:
    if order.run is None:
        return ""
    past = sum(occurrence["step"] <= order.reached_step for occurrence in occurrences)
    return f": {past:,} up to step {order.reached_step:,}, {len(occurrences) - past:,} after it"


COMMAND = Command("seen", _DESCRIPTION, _add_flags, ["digits --example=0 --until=1000"], main)
