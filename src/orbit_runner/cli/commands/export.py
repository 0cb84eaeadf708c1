"""`runner export`: exports a run as a SavedModel, for LiteRT, as ONNX, or as a .keras file."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.config_flags import PROGRESS_FLAGS, tensorflow_scope
from orbit_runner.cli.flags.rows import flag, switch
from orbit_runner.cli.flags.values import OUTPUT_DIRECTORY, RUN_DIRECTORY
from orbit_runner.cli.model_selection import (
    MODEL_FLAGS,
    MODEL_SETTINGS,
    MODEL_SETTINGS_RULE,
    SelectedModel,
    select_model,
)
from orbit_runner.config.schema.trainer import FORMAT_NAMES, SAVED_MODEL
from orbit_runner.errors import RunnerError
from orbit_runner.reporting.document import Section
from orbit_runner.reporting.report import export_table
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.serving.export_directory import export_name, parse_formats
from orbit_runner.serving.formats.base import network_formats

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_DESCRIPTION = """\
Export a model of a run as a SavedModel with named signatures to DIR/STEP, the layout that
TensorFlow Serving expects, or the network alone in other formats to DIR/STEP-FORMAT. The model is
rebuilt in this process and restored from the checkpoint, whatever strategy it was trained with. A
network in another format is compared with the model on validation examples. The run is not changed,
and may still be in progress."""


def main(flags: argparse.Namespace) -> int:
    """Exports a model; raises an error if the export already exists. Returns 0."""
    formats = parse_formats(flags.format)
    if flags.tolerance is not None and not 0 <= flags.tolerance < math.inf:
        message = f"got {flags.tolerance:g}, allowed: a number of at least 0"
        raise RunnerError(message, path="--tolerance", code="out-of-range")
    run = Path(flags.run)
    selected = select_model(run, flags)
    directory = Path(flags.to) if flags.to else run / "export"
    records = _export_formats(directory, selected, formats, flags)
    return emit(flags, records[0] if len(records) == 1 else records, _output_lines(records))


def _check_not_existing(directory: Path, names: Sequence[str], selected: SelectedModel) -> None:
    for name in names:
        if (directory / name).exists():
            alternative = directory.with_name(f"{directory.name}-{selected.weights}")
            raise RunnerError(
                f"{directory / name} already exists\n"
                f"use another directory, such as --to={alternative}, or delete the existing export",
                path="--to",
                code="already-exists",
            )


def _export_formats(
    directory: Path, selected: SelectedModel, formats: Sequence[str], flags: argparse.Namespace
) -> list[JsonObject]:
    _check_not_existing(
        directory, [export_name(selected.choice.step, name) for name in formats], selected
    )
    config = selected.resolved.config
    with tensorflow_scope(
        flags, selected.resolved, "orbit_runner.serving.export", "export", flags.run
    ):
        from orbit_runner.serving.export import export_all
        from orbit_runner.serving.loader import load_scope, make_task
        from orbit_runner.tasks.adapter import adapt

        task = make_task(config, selected.run)
        loaded = load_scope(
            *(config, task, selected.choice, selected.weights),
            needs_signatures=SAVED_MODEL in formats,
        )
        with loaded as model:
            return export_all(
                formats,
                model,
                adapt(task),
                config,
                selected.run,
                directory,
                tolerance=flags.tolerance,
            )


def _output_lines(records: Sequence[JsonObject]) -> Iterator[str]:
    for record in records:
        yield f"{record['path']}: step {record['step']}, {record['weights']} weights"
    yield f"weights sha256 {records[0]['fingerprint']}"
    for record in records:
        yield from _signature_lines(record)
    checked = [record for record in records if "check" in record]
    if checked:
        yield ""
        title = f"on {checked[0]['check']['examples']:,} validation examples:"
        yield from section_lines([Section(title, [export_table(checked)])])


def _signature_lines(record: JsonObject) -> Iterator[str]:
    own = {record.get("format"): {side: record.get(side) for side in ("inputs", "outputs")}}
    for name, spec in record.get("signatures", own).items():
        mark = "  (serving_default)" if name == record.get("default") else ""
        yield f"{name}{mark}"
        for side in ("inputs", "outputs"):
            for key, text in spec[side].items():
                yield f"  {side[:-1]:<6}  {key}  {text}"


_BY_METRIC = [name for name, kind in network_formats().items() if kind.metric_tolerance is not None]
_FLAGS = (
    RUN_DIRECTORY,
    flag("--to", "directory of the export (default: RUN/export)", type=OUTPUT_DIRECTORY),
    flag(
        "--format=FORMAT",
        f"{', '.join(FORMAT_NAMES)}; or several, separated by commas",
        default=SAVED_MODEL,
    ),
    flag(
        "--tolerance=X",
        "largest difference of an output in units of the largest output; for "
        f"{', '.join(_BY_METRIC)}, largest drop of the metric; by default that of the format",
        type=float,
    ),
    *MODEL_FLAGS,
    *PROGRESS_FLAGS,
    switch("--json", "print a description of the export as JSON"),
)
COMMAND = Command(
    "export",
    _DESCRIPTION,
    _FLAGS,
    ["runs/a --format=litert"],
    main,
    settings=MODEL_SETTINGS,
    settings_rule=MODEL_SETTINGS_RULE,
)
