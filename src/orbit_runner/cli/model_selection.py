"""The run that `runner export` and `runner predict` take a model from; imports no tensorflow."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from orbit_runner.checkpoint.selection import (
    AVERAGE,
    PLAIN,
    Choice,
    choose_checkpoint,
    choose_weights,
)
from orbit_runner.cli.flags.config_flags import FIELDS, Parser
from orbit_runner.config.resolve import Request, Resolved, resolve
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.paths import RunDirectory

# The other settings say how and where a run trains.
_SETTINGS = (
    "task",
    "runtime.intra_op_threads",
    "runtime.inter_op_threads",
    "runtime.mixed_precision_dtype",
)
_SETTINGS_RULE = "the model is built in this process, and nothing is trained"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """A model of a run.

    Attributes:
        run: The folder of the run.
        resolved: Its config, with what the flags say of where its data are.
        choice: The checkpoint.
        weights: `average` or `plain`.
    """

    run: Path
    resolved: Resolved
    choice: Choice
    weights: str


def add_choice_flags(to: Parser) -> None:
    """Adds the flags that say which model of a run is meant.

    Args:
        to: The parser.
    """
    to.settings, to.settings_rule = _SETTINGS, _SETTINGS_RULE
    group = to.add_argument_group("which model of the run", "--task.NAME=VALUE sets any setting")
    group.add_argument(
        "--checkpoint",
        metavar="STEP|best|PATH",
        help="the newest that is whole where not given",
    )
    group.add_argument(
        "--weights",
        choices=(AVERAGE, PLAIN),
        help="the moving average (trainer.optimizer_config.ema) or the weights themselves; as "
        "evaluation does where not given: the average, if the run keeps one",
    )
    group.add_argument(
        "--data_dir", metavar="DIR", help="where the data set is now, if it has moved"
    )
    group.add_argument(
        "--import",
        dest="imports",
        action="append",
        metavar="MODULE",
        help="import a module that registers tasks of your own",
    )


def read_chosen(run: Path, flags: argparse.Namespace) -> Chosen:
    """Reads which model is meant, and checks its files.

    Args:
        run: The folder of the run.
        flags: As `add_choice_flags` has them, parsed.

    Returns:
        The model.

    Raises:
        RunnerError: There is no such run, or no such checkpoint.
        ConfigError: Its config does not load.
    """
    config = RunDirectory(run).require_config()
    imports = tuple(flags.imports or ())
    written = resolve(Request(experiment=str(config), imports=imports))
    trainer = written.config.trainer
    choice = choose_checkpoint(run, flags.checkpoint, trainer.best_checkpoint_export_subdir, _note)
    averages = trainer.optimizer_config.ema is not None
    weights = choose_weights(flags.weights, averages=averages, choice=choice)
    record = choice.record()
    if record is not None and not is_made_with(run, record.config, written.config):
        _note(f"note: {choice.place.name} was made with another config than {config}")
    return Chosen(
        run=run, resolved=_apply_flags(run, written, flags), choice=choice, weights=weights
    )


def _apply_flags(run: Path, written: Resolved, flags: argparse.Namespace) -> Resolved:
    """Returns the config with what the flags change in it."""
    changes = [(f"--{path}", path, text) for path, text in flags.dotted]
    if flags.data_dir is not None:
        changes += [("--data_dir", path, flags.data_dir) for path in FIELDS["data_dir"]]
    if not changes:
        return written
    imports = tuple(flags.imports or ())
    return resolve(
        Request(experiment=str(RunDirectory(run).config), imports=imports, flags=tuple(changes))
    )


def _note(text: str) -> None:
    print(text, file=sys.stderr)
