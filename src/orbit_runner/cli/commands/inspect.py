"""`runner inspect`: shows layers, batches, memory and schedule of an experiment."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, Parser, emit
from orbit_runner.cli.flags.config_flags import (
    add_config_flags,
    add_progress_flags,
    apply_argument,
    build_request,
    messages_scope,
    print_notes,
    progress_of,
    run_of,
    tensorflow_scope,
)
from orbit_runner.cli.flags.values import EXPERIMENT, OUTPUT_FILE, Count, write_flag_output
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import ResolvedConfig, resolve
from orbit_runner.config.schema.partitioning import batch_problems
from orbit_runner.errors import DataError, RunnerError, SettingError, format_list
from orbit_runner.inspection.scale import ScaleRequest
from orbit_runner.jobs.preflight import setting_error_scope
from orbit_runner.reporting.html import page
from orbit_runner.reporting.inspection import inspection_sections
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.run_directory.data_record import difference_from_record
from orbit_runner.storage.staging import localize
from orbit_runner.utils.signals import describe_exit
from orbit_runner.utils.streams import print_message, print_result
from orbit_runner.utils.text_table import terminal_width

_DESCRIPTION = """\
Show what an experiment would train, without training: the layers of the model, a batch of the
training and validation data, the sizes of what a step needs, and the schedule. Nothing is written
to a run directory.

With --workers, also show what each replica of a cluster would compute, read and send. These figures
are computed; nothing is started on other machines."""
_DATA_SECTIONS = ("task.train_data", "task.validation_data")
# As in the settings.
_MOST_WORKERS = 65536
_MOST_GPUS = 1024
# Read when TensorFlow starts. The default allocator of a CPU does not count.
_COUNTING_ALLOCATOR = {"TF_CPU_ALLOCATOR_USE_BFC": "true"}


def main(flags: argparse.Namespace) -> int:
    """Prints the inspection of an experiment. Returns 0."""
    apply_argument(flags, "EXPERIMENT")
    request = build_request(flags)
    scale = _scale_request(flags)
    if scale is not None:  # The settings of the cluster override all others.
        flag_of = {"runtime.num_gpus": "--gpus_per_worker"}
        settings = scale.settings().items()
        added = ((flag_of.get(path, "--workers"), path, value) for path, value in settings)
        request = dataclasses.replace(request, flags=(*request.flags, *added))
    resolved = resolve(request)
    print_notes(resolved)
    missing = _find_data_problems(resolved)
    if not missing:
        _report_changed_data(flags, resolved)
    with messages_scope(flags):
        inspection = _inspect(flags, resolved, missing, scale)
    if flags.peak_only:
        print_result(json.dumps(inspection))
        return 0
    sections = [*inspection_sections(inspection)]
    if flags.html:
        title = f"{inspection.name or 'experiment'}: inspection"
        write_flag_output("--html", flags.html, page(title, sections))
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
        help="run a few steps, to measure the speed, the time of the whole run and, in a process "
        "of its own, the memory of a step",
    )
    # Only prints the peak, in the process that measures it.
    parser.add_argument("--peak_only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--html",
        type=OUTPUT_FILE,
        help="write the same as a self-contained HTML page",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_scale_flags(parser)
    add_progress_flags(parser)
    add_config_flags(parser)


def _add_scale_flags(parser: Parser) -> None:
    group = parser.add_argument_group(
        "rehearsal of a cluster", "for `multi_worker_mirrored`, whatever strategy the config has"
    )
    add = group.add_argument
    add("--workers", type=Count(1, _MOST_WORKERS), metavar="N", help="number of workers")
    add(
        "--gpus_per_worker",
        type=Count(1, _MOST_GPUS),
        metavar="N",
        help="number of GPUs of each worker; 1 if not given",
    )


def _scale_request(flags: argparse.Namespace) -> ScaleRequest | None:
    """Returns the cluster that is rehearsed, or None if no flag asks for it."""
    if flags.workers is None:
        if flags.gpus_per_worker is not None:
            raise RunnerError(
                "has no effect without --workers; add --workers=N or remove it",
                path="--gpus_per_worker",
                code="no-effect",
            )
        return None
    return ScaleRequest(flags.workers, flags.gpus_per_worker or 1)


def _find_data_problems(resolved: ResolvedConfig) -> list[Problem]:
    """Returns the problems with data. Raises `ConfigError` for all other problems."""
    config = resolved.config
    with setting_error_scope(resolved):
        problems = [*localize(config).preflight("train_and_eval")]
    replicas = config.runtime.num_replicas()
    problems += batch_problems(config, replicas) if replicas else ()
    problems += config.trainer.length_problems()
    problems = resolved.locate(problems)
    data = [
        problem
        for problem in problems
        if problem.path.startswith(_DATA_SECTIONS) and "batch" not in problem.path
    ]
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
        print_message(
            f"note: the data shown here changed since {run} last started:\n"
            f"{format_list(difference.changes)}",
        )


def _peak_in_own_process(arguments: Sequence[str]) -> tuple[int | None, str]:
    """Returns the result of `measure_peak` in a process of its own.

    Must be called before this process uses a GPU, because TensorFlow reserves all of its memory.
    Raises `RunnerError` with the message and the exit code of the process if it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "orbit_runner", "inspect", "--peak_only", *arguments, "--quiet"],
        env={**os.environ, **_COUNTING_ALLOCATOR},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        error = RunnerError(
            "--measure: the process that measures the memory of a step "
            f"{describe_exit(done.returncode)}\ntry a smaller batch, or leave the flag out\n"
            f"{done.stderr.rstrip()}",
            code="out-of-memory",
        )
        error.exit_code = exit_codes.of_child(done.returncode)
        raise error
    peak, device = json.loads(done.stdout.splitlines()[-1])
    return peak, device


def _inspect(
    flags: argparse.Namespace,
    resolved: ResolvedConfig,
    missing: list[Problem],
    scale: ScaleRequest | None,
) -> Any:
    """Returns the inspection; with `--peak_only`, the result of `measure_peak`."""
    title = f"inspect {resolved.config.name}"
    peak: tuple[int | None, str] = (None, "")
    if flags.measure and not flags.peak_only:
        progress = progress_of(flags, title)
        with progress.shown_scope():
            progress.phase("measuring the memory of a step in a process of its own")
            peak = _peak_in_own_process(flags.arguments)
    with tensorflow_scope(flags, resolved, "orbit_runner.inspection.experiment", title):
        from orbit_runner.inspection.experiment import inspect_experiment, measure_peak

        problems = [(problem.path, problem.message) for problem in missing]
        try:
            if flags.peak_only:
                return measure_peak(resolved.config, problems=problems, run=run_of(flags))
            return inspect_experiment(
                resolved.config,
                measure=flags.measure,
                peak=peak,
                every_layer=flags.layers,
                problems=problems,
                run=run_of(flags),
                scale=scale,
            )
        except (DataError, SettingError) as error:
            if not missing:
                raise
            # The model depends on the data, so that nothing can be shown without them.
            raise ConfigError(missing) from error


COMMAND = Command("inspect", _DESCRIPTION, _add_flags, ["digits --measure"], main)
