"""The command that continues a run, shown where a command ends early."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.errors import Diverged
from orbit_runner.jobs.train_job import CONTINUED_CODES, Job


def continuation(job: Job, place: str, error: BaseException) -> str:
    """Returns the run directory and the command that continues a run, as lines below a message.

    "" if there is nothing to continue, or if the process is a member of a cluster, whose launcher
    starts it again. `place` is the run directory as the user named it.
    """
    code = getattr(error, "exit_code", 130 if isinstance(error, KeyboardInterrupt) else 1)
    if job.cluster is not None or job.mode not in TRAINING or code not in CONTINUED_CODES:
        return ""
    if not checkpoints_of(job.model_dir).committed_steps():
        return ""
    lines = format_continuation(place, _continuing_command(job, place, error))
    hint = "  # add what you change, such as the learning rate"
    return lines + hint * isinstance(error, Diverged)


def _continuing_command(job: Job, place: str, error: BaseException) -> list[str]:
    """Returns the command that continues a run in `place`; after divergence, with a change."""
    command = change_flags(job.argv, {"stop_at_step": None})
    # A branch takes its settings from RUN, and has no --resume.
    is_branch = command[1:2] == ["branch"] and isinstance(error, Diverged)
    if is_branch:
        command = ["runner", f"--experiment={place}", f"--mode={job.mode}"]
    if not any(word.startswith("--model_dir") for word in command):
        command.append(f"--model_dir={place}")
    if not isinstance(error, Diverged):
        return command
    return change_flags(command, {"resume": "override"})


def format_continuation(place: str, command: Sequence[str]) -> str:
    """Returns a run directory, and the command that continues the run, as two lines."""
    return f"  run       {place}\n  continue  {shlex.join(command)}"


def change_flags(command: Sequence[str], values: Mapping[str, str | None]) -> list[str]:
    """Returns a command with other values of some flags; None removes a flag."""
    rest = list[str]()
    skips = False
    for word in command:
        name, equals, _ = word.partition("=")
        is_changed = name.startswith("--") and name[2:] in values
        if not skips and not is_changed:
            rest.append(word)
        skips = is_changed and not equals
    return [*rest, *(f"--{name}={value}" for name, value in values.items() if value is not None)]
