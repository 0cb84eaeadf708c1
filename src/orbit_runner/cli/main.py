"""The `runner` command: runs a command and turns errors into messages and exit codes."""

from __future__ import annotations

# Import as little as possible: Ctrl-C during these imports prints a traceback.
import errno
import importlib
import json
import os
import sys

from orbit_runner.utils import signals
from orbit_runner.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from orbit_runner.cli.command import Command
    from orbit_runner.errors import RunnerError

# The commands by group, for `--help` and docs/commands.md. Each has a module of its name in
# `cli/commands/`, which is imported only to run it.
GROUPS = {
    "Train": {
        "run": "train, evaluate, or both (the default: `runner --experiment=…` is `runner run …`)",
        "sweep": "run trials of an experiment with other settings, and find the best",
        "branch": "start a run that continues another one from any step, under changed settings",
        "launch": "start a cluster on this machine, and restart it if a member is lost",
        "server": "run a worker or parameter server for runs on other machines",
    },
    "Look": {
        "inspect": "show layers, a batch, memory and schedule of an experiment before it trains",
        "batch": "show the examples of a training step, or the steps that train on an example",
        "runs": "list runs: status, progress, results, and the settings that differ",
        "compare": "compare runs: settings, metrics, curves, throughput and weights",
        "report": "write the report of a run as HTML: curves, config, environment, fingerprints",
        "evaluate": "evaluate a checkpoint of a run on its validation data, or on another split",
    },
    "Explain": {
        "why": "find out why two runs differ: the cause, the first step and the first tensor",
        "replay": "repeat a step of a run: losses of its examples, gradients, first NaN",
        "verify": "check that the checkpoints of a run have not changed since they were written",
        "reproduce": "run a saved config again, and check that the weights are identical",
    },
    "Ship": {
        "export": "export a run as a SavedModel, for LiteRT, as ONNX or as a .keras file",
        "predict": "print predictions for images, texts or users, from a run or an export",
    },
    "Configure": {
        "list": "list experiments, fragments, tasks, models, data sources and strategies",
        "show": "print the resolved config, where each value was set, how two configs differ, or "
        "all errors of config files",
    },
    "Set up": {
        "init": "write an experiment for a dataset, or a project with a task of your own",
        "data": "list, download, verify and unpack public datasets",
        "clean": "delete checkpoints that are no longer needed, after showing them",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
# What the program itself does, by the first word. Each is a module of `cli/`.
OWN_WORDS = {"help": "setting_help", "--version": "versions", "--completion": "completion"}

_HELP = f"""\
Orbit Runner {__version__}: run TensorFlow experiments that are defined by config files.

usage: runner [COMMAND] [FLAGS]

{{commands}}

examples:
  runner --experiment=digits
  runner --experiment=resnet_cifar --model_dir=runs/a --mode=train_and_eval \\
         --config_file=configs/runtime/mirrored_2gpu.yaml \\
         --gin_param='trainer.train_steps=1000'
  runner show --experiment=digits --task.model.dropout_rate=0.2 --origins

`runner COMMAND --help` lists the flags of a command.
`runner help SETTING` describes a setting: type, default and effect.
`runner --version` prints versions, devices and the git revision.
`runner --completion SHELL` prints the script that completes commands and flags.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    `argv` are the arguments after the program name; None for those of the process.

    Exit codes: 0 success; 1 crash, a dataset that could not be downloaded, or an unreachable object
    store; 2 wrong usage or config; 3 diverged, or the last evaluation is not finite; 4 `verify`,
    `reproduce`, `branch`, `replay` or `why` found a difference; 5 `predict` has no prediction for
    some items; 6 the results could not be written to standard output; 138 another member of the
    cluster was lost; 128 + n for signal n.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    from orbit_runner.errors import RunnerError, shorten
    from orbit_runner.utils.log import PlainMessages, log_scope
    from orbit_runner.utils.streams import print_message, print_result

    as_json = "--json" in arguments and not _has_launcher()
    try:
        with log_scope(PlainMessages()):
            return _dispatch(arguments)
    except RunnerError as error:
        return _print_error(error, as_json)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        message = f"{shorten(str(error.filename))}: the name is too long"
        return _print_error(RunnerError(message, code="bad-path"), as_json)
    except KeyboardInterrupt as error:
        detail = f"; {error}" if str(error) else ""
        print_message(f"runner: interrupted{detail}")
        if as_json:
            interrupted = RunnerError(f"interrupted{detail}", code="interrupted")
            print_result(json.dumps({"errors": interrupted.as_dicts()}))
        _print_continuation(error)
        return getattr(error, "exit_code", 130)


def _has_launcher() -> bool:
    """Returns whether `runner launch` started this process.

    Such a process may be lost and started again. It prints only results, no errors as JSON.
    """
    from orbit_runner.launch import LAUNCHED

    return LAUNCHED in os.environ


def _print_error(error: RunnerError, as_json: bool = False) -> int:
    """Prints an error and returns its exit code. JSON goes to standard output, for scripts."""
    from orbit_runner.errors import ExportFailed
    from orbit_runner.utils.streams import print_message, print_result

    if error.exit_code:
        print_message(f"runner: {error}")
        # The results of a run contain why its export failed, and have been printed.
        if as_json and not isinstance(error, ExportFailed):
            print_result(json.dumps({"errors": error.as_dicts()}))
    _print_continuation(error)
    return error.exit_code


def _print_continuation(error: BaseException) -> None:
    if text := getattr(error, "continuation", ""):
        from orbit_runner.utils.streams import print_message

        print_message(text)


def _dispatch(arguments: list[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if first in ("--help", "-h", "help"):
        if rest := [word for word in arguments[1:] if word in COMMANDS]:
            return _dispatch([rest[0], "--help"])
        if any(not word.startswith("-") for word in arguments[1:]):
            return load_command("help").main(arguments[1:])
        from orbit_runner.utils.streams import print_result

        print_result(_HELP.format(commands="\n\n".join(map(_format_group, GROUPS))))
        return 0
    if first.startswith("-") and first not in OWN_WORDS:
        first = "run"
        rest = arguments
    else:
        rest = arguments[1:]
    if first not in COMMANDS and first not in OWN_WORDS:
        from orbit_runner.errors import RunnerError, unknown_name_message

        message = unknown_name_message("command", first, [*COMMANDS])
        raise RunnerError(message, code="unknown-command")
    return load_command(first).main(rest)


def _format_group(group: str) -> str:
    from orbit_runner.utils.text_table import described_lines, terminal_width

    lines = described_lines(GROUPS[group], terminal_width(), max(map(len, COMMANDS)))
    return "\n".join([f"{group}:", *lines])


def load_command(name: str) -> Command:
    """Imports the module of a command, or of one of `OWN_WORDS`."""
    module = OWN_WORDS.get(name) or f"commands.{name}"
    command: Command = importlib.import_module(f"orbit_runner.cli.{module}").COMMAND
    return command


def entry() -> NoReturn:
    """Runs one command and exits the process with its exit code."""
    exit_process(run_command())


def run_command() -> int:
    """Runs the command of `sys.argv`, and returns its exit code."""
    signals.install_interrupt_handler()
    try:
        return _run_command()
    except BaseException:
        if not signals.was_interrupted():
            raise
        from orbit_runner.utils.streams import print_message

        # Native code turns Ctrl-C during its import into other errors.
        print_message("runner: interrupted")
        return 130


def exit_process(code: int) -> NoReturn:
    """Exits the process."""
    signals.ignore_interrupts()
    if code == 130 or any(name.startswith("tensorflow") for name in sys.modules):
        # All files are written by now, and destroying TensorFlow's objects would only take time:
        # under `mirrored`, an iterator may take about as long as it has existed.
        os._exit(code)
    sys.exit(code)


def _add_current_directory() -> None:
    """Makes modules in the current directory importable, as `python -m orbit_runner` does.

    It comes last, so that its modules do not replace installed ones.
    """
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def _run_command() -> int:
    from orbit_runner.errors import OutputError
    from orbit_runner.utils import garbage_collection, streams

    streams.install_tolerant_streams()
    garbage_collection.freeze_after_pauses()
    _add_current_directory()
    try:
        code = main()
    except SystemExit as done:  # `runner COMMAND --help`
        code = int(done.code or 0)
    try:
        streams.check_stdout()
    except OutputError as error:
        if code != error.exit_code:
            printed = _print_error(error)
            code = code or printed
    return code


if __name__ == "__main__":
    entry()
