"""The command that trains a trial up to a step: an ordinary `runner run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbit_runner.config.serialize import inline_yaml
from orbit_runner.sweep.definition import Sweep
from orbit_runner.sweep.schedule import TrialTask


def trial_arguments(
    sweep: Sweep,
    task: TrialTask,
    settings: Mapping[str, Any],
    model_dir: Path,
    imports: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Returns the arguments of `runner` that train a trial for a task, or resume it."""
    file = sweep.file
    values = {**dict(sweep.machine_settings), **settings}
    # Only after `--more_steps`: otherwise, the config of a trial sets it.
    longer = task.train_steps if task.train_steps != sweep.train_steps[0] else 0
    return (
        "run",
        f"--experiment={file.experiment}",
        *(f"--config_file={name}" for name in file.config_files),
        *([f"--params_override={inline_yaml(file.overrides)}"] if file.overrides else []),
        *(f"--{path}={inline_yaml(value)}" for path, value in values.items()),
        f"--seed={task.seed}",
        *([f"--train_steps={longer}"] if longer else []),
        *([f"--stop_at_step={task.stop_at}"] if task.stop_at is not None else []),
        *(f"--import={name}" for name in imports),
        f"--model_dir={model_dir}",
        "--progress=plain",
        "--json",
    )
