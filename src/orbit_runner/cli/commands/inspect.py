"""`runner inspect`: shows layers, batches, memory and schedule of an experiment."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from orbit_runner.cli.command import Command, Parser, emit
from orbit_runner.cli.flags.config_flags import (
    add_config_flags,
    add_progress_flags,
    apply_argument,
    build_request,
    messages_scope,
    print_notes,
    run_of,
    tensorflow_scope,
)
from orbit_runner.cli.flags.values import EXPERIMENT, OUTPUT_FILE, write_flag_output
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import ResolvedConfig, resolve
from orbit_runner.config.schema.partitioning import batch_problems
from orbit_runner.errors import DataError, SettingError, format_list
from orbit_runner.jobs.preflight import setting_error_scope
from orbit_runner.reporting.html import page
from orbit_runner.reporting.inspection import inspection_sections
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.run_directory.data_record import difference_from_record
from orbit_runner.storage.staging import localize
from orbit_runner.utils.streams import use_utf8
from orbit_runner.utils.text_table import terminal_width

if TYPE_CHECKING:
    from orbit_runner.inspection.experiment import Inspection

_DESCRIPTION = """\
Show what an experiment would train, without training: the layers of the model, a batch of the
training and validation data, the sizes of what a step needs, and the schedule. Nothing is written
to a run directory."""
_DATA_SECTIONS = ("task.train_data", "task.validation_data")


def main(flags: argparse.Namespace) -> int:
    """Prints the inspection of an experiment. Returns 0."""
    apply_argument(flags, "EXPERIMENT")
    resolved = resolve(build_request(flags))
    print_notes(resolved)
    missing = _find_data_problems(resolved)
    if not missing:
        _report_changed_data(flags, resolved)
    with messages_scope(flags):
        inspection = _inspect(flags, resolved, missing)
    sections = [*inspection_sections(inspection)]
    if flags.html:
        title = f"{inspection.name or 'experiment'}: inspection"
        write_flag_output("--html", flags.html, page(title, sections))
    use_utf8()
    emit(flags, inspection.as_dict(), section_lines(sections, terminal_width()))
    return 0


def _add_flags(parser: Parser) -> None:
    parser.add_argument(
        "named",
        nargs="?",
        metavar="EXPERIMENT",
        type=EXPERIMENT,
        help="the experiment; same as --experiment",
    )
    parser.add_argument("--layers", action="store_true", help="show each layer on a separate line")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="run a few steps, to measure the speed and the time of the whole run",
    )
    parser.add_argument(
        "--html",
        type=OUTPUT_FILE,
        help="write the same as a self-contained HTML page",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_progress_flags(parser)
    add_config_flags(parser)


def _find_data_problems(resolved: ResolvedConfig) -> list[Problem]:
    """Returns the problems with data. Raises `ConfigError` for all other problems."""
    config = resolved.config
    with setting_error_scope(resolved):
        problems = [*localize(config).preflight("train_and_eval")]
    replicas = config.runtime.num_replicas()
    problems += batch_problems(config, replicas) if replicas else ()
    problems += config.trainer.length_problems()
    problems = resolved.locate(problems)
    data = [problem for problem in problems if _is_data_problem(problem)]
    if len(data) != len(problems):
        raise ConfigError(problems)
    return data


def _report_changed_data(flags: argparse.Namespace, resolved: ResolvedConfig) -> None:
    """Reports that a run was trained on other data than is shown, if it was."""
    run = run_of(flags)
    if run is None:
        return
    difference = difference_from_record(localize(resolved.config).task, run)
    if difference.changes:
        print(
            f"note: the data shown here changed since {run} last started:\n"
            f"{format_list(difference.changes)}",
            file=sys.stderr,
        )


def _is_data_problem(problem: Problem) -> bool:
    return problem.path.startswith(_DATA_SECTIONS) and "batch" not in problem.path


def _inspect(
    flags: argparse.Namespace, resolved: ResolvedConfig, missing: list[Problem]
) -> Inspection:
    title = f"inspect {resolved.config.name}"
    with tensorflow_scope(flags, resolved, "orbit_runner.inspection.experiment", title):
        from orbit_runner.inspection.experiment import inspect_experiment

        try:
            return inspect_experiment(
                resolved.config,
                measure=flags.measure,
                every_layer=flags.layers,
                problems=[(problem.path, problem.message) for problem in missing],
                run=run_of(flags),
            )
        except (DataError, SettingError) as error:
            if not missing:
                raise
            # The model depends on the data, so that nothing can be shown without them.
            raise ConfigError(missing) from error


COMMAND = Command("inspect", _DESCRIPTION, _add_flags, ["digits --measure"], main)
