"""`runner inspect`: shows layers, batches, memory and schedule of an experiment."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from orbit_runner.cli.command import SECTIONS, Command, emit
from orbit_runner.cli.flags.config_flags import (
    CONFIG_FLAGS,
    PROGRESS_FLAGS,
    apply_argument,
    build_request,
    print_notes,
    run_of,
    tensorflow_scope,
)
from orbit_runner.cli.flags.rows import JSON, Group, flag, switch
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
from orbit_runner.utils.streams import print_message
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
    inspection = _inspect(flags, resolved, missing, scale)
    sections = [*inspection_sections(inspection)]
    if flags.html:
        title = f"{inspection.name or 'experiment'}: inspection"
        write_flag_output("--html", flags.html, page(title, sections))
    return emit(flags, inspection.as_dict(), section_lines(sections, terminal_width()))


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
            f"{format_list(difference.changes)}"
        )


def _inspect(
    flags: argparse.Namespace,
    resolved: ResolvedConfig,
    missing: list[Problem],
    scale: ScaleRequest | None,
) -> Any:
    title = f"inspect {resolved.config.name}"
    with tensorflow_scope(flags, resolved, "orbit_runner.inspection.experiment", title):
        from orbit_runner.inspection.experiment import inspect_experiment

        problems = [(problem.path, problem.message) for problem in missing]
        try:
            return inspect_experiment(
                resolved.config,
                measure=flags.measure,
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


_FLAGS = (
    flag("named=EXPERIMENT", "the experiment; same as --experiment", nargs="?", type=EXPERIMENT),
    switch("--layers", "show each layer on a separate line"),
    switch("--measure", "run a few steps, to measure the speed and the time of the whole run"),
    flag("--html", "write the same as a self-contained HTML page", type=OUTPUT_FILE),
    JSON,
    Group(
        [
            flag("--workers=N", "number of workers", type=Count(1, _MOST_WORKERS)),
            flag(
                "--gpus_per_worker=N",
                "number of GPUs of each worker; 1 if not given",
                type=Count(1, _MOST_GPUS),
            ),
        ],
        "rehearsal of a cluster",
        "for `multi_worker_mirrored`, whatever strategy the config has",
    ),
    *PROGRESS_FLAGS,
    *CONFIG_FLAGS,
)
COMMAND = Command("inspect", _DESCRIPTION, _FLAGS, ["digits --measure"], main, settings=SECTIONS)
