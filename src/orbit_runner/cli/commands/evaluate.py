"""`runner evaluate`: evaluates a checkpoint of a run on its validation data or on other data."""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.config_flags import PROGRESS_FLAGS, tensorflow_scope
from orbit_runner.cli.flags.rows import JSON, flag
from orbit_runner.cli.flags.values import RUN_DIRECTORY
from orbit_runner.cli.model_selection import (
    MODEL_FLAGS,
    MODEL_SETTINGS,
    SelectedModel,
    select_model,
)
from orbit_runner.config.schema.data import DataConfig
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.errors import first_line
from orbit_runner.jobs.preflight import check_evaluation
from orbit_runner.repeat.plan import convert_to_single_process
from orbit_runner.reporting.document import Section
from orbit_runner.reporting.evaluation import evaluation_parts
from orbit_runner.reporting.report_data import parse_evaluation
from orbit_runner.reporting.results import worse_than_constant
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.run_directory.config import resolve_run
from orbit_runner.run_directory.evaluations import evaluated_data, write_evaluation
from orbit_runner.utils.files import timestamp, to_jsonable
from orbit_runner.utils.log import note
from orbit_runner.utils.text_table import table_lines

if TYPE_CHECKING:
    from orbit_runner.config.resolve import ResolvedConfig
    from orbit_runner.config.schema.experiment import ExperimentConfig
    from orbit_runner.serving.evaluation import CheckpointEvaluation
    from orbit_runner.utils.types import JsonObject

_DESCRIPTION = """\
Evaluate a checkpoint of a run on its validation data, or on other data: another split, or other
files (--task.validation_data.NAME=VALUE). The results are printed and written to a file in
RUN/evaluations, with what the report shows of an evaluation, such as the confusion matrix. The
records of training, the best checkpoint and the curves do not change, and the run may still be in
progress. The exit code is 3 if a result is NaN or infinite."""
_VALIDATION = "task.validation_data"
# The settings of a task that split its data into parts.
_PARTS = ("split", "validation_split")
# What else decides how a run evaluates.
_SETTINGS = (
    "trainer.validation_steps",
    "runtime.distribution_strategy",
    "runtime.num_gpus",
    "runtime.num_virtual_devices",
)


def main(flags: argparse.Namespace) -> int:
    """Evaluates a checkpoint. Returns 0, or 3 if a result is not finite."""
    run = Path(flags.run)
    selected = _select(run, flags)
    selected = dataclasses.replace(selected, resolved=_convert(selected))
    check_evaluation(selected.resolved, run)
    data = evaluated_data(run, selected.resolved.config)
    values = _describe(selected, data) | _evaluate(selected, flags)
    values["file"] = _write(run, selected.choice.step, values)
    is_finite = all(math.isfinite(value) for value in values["metrics"].values())
    code = 0 if is_finite else exit_codes.DIVERGED
    return emit(flags, to_jsonable(values), _lines(values), code)


def _select(run: Path, flags: argparse.Namespace) -> SelectedModel:
    """Returns the model, with the split that `--split` names."""
    selected = select_model(run, flags)
    if flags.split is None:
        return selected
    path = f"{_VALIDATION}.{_split_setting(selected.resolved.config)}"
    changes = [("--split", path, flags.split), *flags.overrides]
    resolved = resolve_run(run, tuple(flags.imports or ()), changes)
    return dataclasses.replace(selected, resolved=resolved)


def _split_setting(config: ExperimentConfig) -> str:
    """Returns the setting of the validation data that `--split` stands for."""
    task = config.for_task.task
    section = getattr(task, "validation_data", None)
    if any(getattr(task, name, None) for name in _PARTS):
        return "split"
    if isinstance(section, DataConfig):
        return section.traits.split_setting
    # A section of Model Garden has no source.
    return "tfds_split" if getattr(section, "tfds_name", "") else "split"


def _convert(selected: SelectedModel) -> ResolvedConfig:
    """Returns the config for this process, which evaluates alone with the same result."""
    return convert_to_single_process(selected.resolved, selected.choice.record().strategy)


def _describe(selected: SelectedModel, data: JsonObject) -> JsonObject:
    return {
        "time": timestamp(),
        "command": shlex.join(["runner", *sys.argv[1:]]),
        "checkpoint": selected.choice.name,
        "step": selected.choice.step,
        "weights": selected.weights,
        "data": data,
    }


def _evaluate(selected: SelectedModel, flags: argparse.Namespace) -> JsonObject:
    config = selected.resolved.config
    module = "orbit_runner.serving.evaluation"
    with tensorflow_scope(flags, selected.resolved, module, "evaluate", flags.run):
        from orbit_runner import train_lib
        from orbit_runner.serving.evaluation import CheckpointEvaluation
        from orbit_runner.train.error_messages import VALIDATION_DATA, error_message_scope

        strategy, task = train_lib.prepare(config, str(selected.run), mode="eval")
        with error_message_scope(config, VALIDATION_DATA):
            evaluation = CheckpointEvaluation.restore(
                config, task, strategy, selected.run, selected.choice, selected.weights
            )
            metrics = evaluation.evaluate()
            return {
                "metrics": metrics,
                "baselines": dict(evaluation.config.data.baselines_of(metrics)),
                "weights_sha256": evaluation.fingerprint(),
                "details": _details(evaluation),
            }


def _write(run: Path, step: int, values: JsonObject) -> str | None:
    """Writes the result, and returns the file; None in a run of others, or in an archive."""
    try:
        return str(write_evaluation(run, step, values))
    except OSError as error:
        note(f"warning: the result is not written to {run}: {error.strerror}")
        return None


def _details(evaluation: CheckpointEvaluation) -> JsonObject | None:
    """Returns what is known of the evaluation besides its metrics, or None."""
    from orbit_runner.reporting.report_collection import collect_details

    try:
        details = collect_details(evaluation)
    except Exception as error:
        note(f"warning: the evaluation has no examples: {first_line(error)}")
        return None
    return None if details is None else dataclasses.asdict(details)


def _lines(values: JsonObject) -> Iterator[str]:
    rows = [("checkpoint", f"{values['checkpoint']}, {values['weights']} weights")]
    data = values["data"]
    rows += [("data", f"{path}: {inline_yaml(value)}") for path, value in data.items()]
    if not data:
        rows.append(("data", "the validation data of the run"))
    for name, value in values["metrics"].items():
        mark = "" if math.isfinite(value) else "  (not finite)"
        text = f"{value:.0f}" if name == "validation_examples" else f"{value:.4f}"
        if name in values["baselines"]:
            constant, result = values["baselines"][name]
            mark += f"  {constant} {result:.4f}"
        rows.append((name, f"{text}{mark}"))
    if warning := worse_than_constant(values["metrics"], values["baselines"]):
        rows.append(("warning", warning))
    rows.append(("weights", f"sha256 {values['weights_sha256']}"))
    if values["file"]:
        rows.append(("written to", values["file"]))
    yield from table_lines(rows)
    if values["details"]:
        parts = evaluation_parts(parse_evaluation(values["details"]))
        width = shutil.get_terminal_size((120, 24)).columns
        yield from ["", *section_lines([Section("", parts)], width)]


_FLAGS = (
    RUN_DIRECTORY,
    flag(
        "--split=NAME",
        "split of the dataset, or part of a table, to evaluate; by default the validation data "
        "of the run",
    ),
    *MODEL_FLAGS,
    *PROGRESS_FLAGS,
    JSON,
)
COMMAND = Command(
    "evaluate",
    _DESCRIPTION,
    _FLAGS,
    ["runs/a --split=test"],
    main,
    settings=(*MODEL_SETTINGS, *_SETTINGS),
    settings_rule="the model is only evaluated: other settings have no effect",
)
