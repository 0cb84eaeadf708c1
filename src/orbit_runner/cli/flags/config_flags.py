"""The flags that select and change an experiment, shared by the commands."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.cli.flags.rows import Flag, Group, flag, switch
from orbit_runner.cli.flags.values import (
    CONFIG_FILE,
    EXPERIMENT,
    LOCAL_EXPERIMENT,
    SETTINGS_TEXT,
    OverrideAction,
)
from orbit_runner.config.errors import note_text
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schema.base import INT_MAX
from orbit_runner.errors import RunnerError, shorten
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.streams import print_message

if TYPE_CHECKING:
    from orbit_runner.jobs.train_job import Progress

SETTINGS_OF_FLAG: dict[str, tuple[str, ...]] = {
    "distribution_strategy": ("runtime.distribution_strategy",),
    "num_gpus": ("runtime.num_gpus",),
    "tpu": ("runtime.tpu",),
    "tpu_platform": ("runtime.tpu_platform",),
    "seed": ("runtime.seed",),
    "train_steps": ("trainer.train_steps",),
    "train_epochs": ("trainer.train_epochs",),
    "data_dir": ("task.train_data.data_dir", "task.validation_data.data_dir"),
    "tf_data_service": ("runtime.tf_data_service",),
}
# Scripts for Model Garden's drivers pass these empty if they are unset.
_MAY_BE_EMPTY = (
    *("--params_override", "--gin_param", "--tpu", "--tpu_platform", "--tf_data_service"),
)
_EXPERIMENT = "a name that `runner list` shows, a config file, or a run directory"


def config_flags(experiment: str = _EXPERIMENT) -> tuple[Flag | Group, ...]:
    """Returns the flags that make up a config; `experiment` is the help text of `--experiment`."""
    group = Group(
        [
            flag("--experiment", experiment, type=EXPERIMENT),
            flag(
                "--config_file",
                "YAML or JSON file that overrides the experiment; may be repeated",
                action="append",
                type=CONFIG_FILE,
            ),
            flag(
                "--gin_file",
                "gin file that overrides the config files; may be repeated",
                action="append",
                type=CONFIG_FILE,
            ),
            flag(
                "--params_override",
                "a.b=1,c.d=2, YAML or JSON text, or a file; may be repeated",
                action=OverrideAction,
                type=SETTINGS_TEXT,
            ),
            flag(
                "--gin_param --gin_params=BINDING",
                "gin binding, such as trainer.train_steps=1000; may be repeated",
                action=OverrideAction,
            ),
            *map(_setting_flag, SETTINGS_OF_FLAG),
        ],
        "config",
        "--SECTION.NAME=VALUE sets any setting, such as --trainer.train_steps=1000. Flags override "
        "gin files, which override config files; of several flags, the last one wins.",
    )
    return group, IMPORT, _VERBOSITY


def _setting_flag(name: str) -> Flag:
    """Returns the flag that sets the settings of `SETTINGS_OF_FLAG`."""
    paths = SETTINGS_OF_FLAG[name]
    text = f"set {' and '.join(paths)}"
    return flag(f"--{name}=VALUE", text, action=OverrideAction, settings=paths)


def progress_of(
    flags: argparse.Namespace, title: str = "", place: str = "", *, brief: bool = False
) -> Progress:
    """Returns the progress display that the flags select; see `make_progress`."""
    from orbit_runner.reporting.progress.lines import make_progress

    return make_progress(flags.progress, brief=brief, title=title, place=place)


def library_output_scope(flags: argparse.Namespace) -> contextlib.AbstractContextManager[object]:
    """With `--json`, sends what libraries and tasks print to standard error.

    Standard output is then one document, which must be printed outside of the `with` block.
    """
    return contextlib.redirect_stdout(sys.stderr) if flags.json else contextlib.nullcontext()


@contextlib.contextmanager
def tensorflow_scope(
    flags: argparse.Namespace, resolved: ResolvedConfig, module: str, title: str, place: str = ""
) -> Iterator[Progress]:
    """Imports a module that needs TensorFlow, and applies the gin statements of a config.

    Shows progress until the block ends. Errors in the block about settings name their origins.
    """
    from orbit_runner.distribute.tf_environment import prepare_environment
    from orbit_runner.jobs.gin_bindings import bind_gin
    from orbit_runner.jobs.preflight import setting_error_scope
    from orbit_runner.utils.garbage_collection import paused_collection_scope

    progress = progress_of(flags, title, place)
    with progress.shown_scope(), setting_error_scope(resolved), library_output_scope(flags):
        progress.phase("importing tensorflow")
        prepare_environment(resolved.config.runtime)
        with paused_collection_scope():
            importlib.import_module(module)
        bind_gin(resolved)
        yield progress


def parse_step(text: str) -> int:
    """Returns the step that a flag names."""
    if not is_step_number(text):
        raise argparse.ArgumentTypeError(
            f"got {shorten(text)!r}, allowed: a step from 1 to {INT_MAX}"
        )
    return int(text)


def is_step_number(text: str) -> bool:
    """Returns whether a text is the number of a step that a config allows."""
    return text.isdecimal() and len(text) <= len(str(INT_MAX)) and 1 <= int(text) <= INT_MAX


def resolve_experiment(flags: argparse.Namespace, name: str) -> ResolvedConfig:
    """Returns the config of the argument `name` or of `--experiment`, and prints its notes.

    Raises `RunnerError` if both are set differently.
    """
    apply_argument(flags, name)
    resolved = resolve(build_request(flags))
    print_notes(resolved)
    return resolved


def apply_argument(flags: argparse.Namespace, name: str) -> None:
    """Sets `flags.experiment` to an argument. Raises `RunnerError` if both are set differently."""
    given = flags.named
    if given and flags.experiment and given != flags.experiment:
        raise RunnerError(
            f"got {flags.experiment!r}, but {name} is {given!r}\npass only one of them",
            path="--experiment",
            code="conflict",
        )
    flags.experiment = given or flags.experiment


def run_of(flags: argparse.Namespace) -> Path | None:
    """Returns the run directory that was specified, or None if it was an experiment."""
    path = Path(flags.experiment or "")
    return path if flags.experiment and RunDirectory(path).config.is_file() else None


def build_request(flags: argparse.Namespace) -> Request:
    """Returns the request that the parsed flags describe."""
    return Request(
        experiment=flags.experiment,
        config_files=_drop_empty(flags.config_file),
        gin_files=_drop_empty(flags.gin_file),
        flags=tuple(
            (flag, path, text)
            for flag, path, text in flags.overrides
            if text or flag not in _MAY_BE_EMPTY
        ),
        imports=tuple(flags.imports or ()),
    )


def print_notes(resolved: ResolvedConfig) -> None:
    """Prints a note about settings that have no effect."""
    if resolved.notes:
        print_message(note_text(resolved.notes))


def _drop_empty(texts: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(text for text in texts or () if text)


# A run, or an experiment that may not have run yet.
TRAINED = flag(
    "named",
    "a run directory, an experiment or a config file; same as --experiment",
    nargs="?",
    type=LOCAL_EXPERIMENT,
)
IMPORT = flag(
    "--import=MODULE",
    "import a module first, such as one that registers custom tasks; may be repeated",
    dest="imports",
    action="append",
)
_VERBOSITY = flag(
    "--verbosity -v=LEVEL",
    "log level of Model Garden; -1: warnings (the default), 0: information, 1: everything",
    type=int,
)
CONFIG_FLAGS = config_flags()
PROGRESS_FLAGS = (
    flag(
        "--progress",
        "progress on standard error: a live display with a bar, plain lines, or warnings and "
        "errors only; auto: bar on a terminal, otherwise plain",
        choices=("auto", "bar", "plain", "none"),
        default="auto",
    ),
    switch(
        "--quiet",
        "same as --progress=none; the results are still printed",
        action="store_const",
        const="none",
        dest="progress",
        default=argparse.SUPPRESS,
    ),
)
