"""The `runner` command: finds the command, runs it, turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from orbit_runner import __version__
from orbit_runner.config.problems import unknown
from orbit_runner.errors import RunnerError
from orbit_runner.runtime import garbage

COMMANDS = {
    "run": "train, evaluate, or both (the default: `runner --experiment=…` is `runner run …`)",
    "launch": "a cluster on this machine: starts its members, and replaces those that are lost",
    "server": "lends this machine to a run that is driven from elsewhere",
    "list": "experiments, fragments, tasks, models, data sources, strategies",
    "show": "the resolved config as YAML that loads again; --origins says where values came from",
    "validate": "check config files, all errors of all files at once",
    "diff": "what differs between two experiments, files or runs",
    "verify": "whether the checkpoints of a run are still what they were when they were written",
    "reproduce": "run a saved config again, and say whether the weights are the same",
    "export": "a SavedModel of a run, which needs nothing but tensorflow",
    "predict": "what a model says of images, texts or users, from a run or an export",
    "data": "public data sets: what there is, and download, check and unpack one",
    "manifest": "what Kubernetes, Slurm or Vertex AI needs to run an experiment there",
    "env": "versions, devices and git revision, for a bug report",
}

# They live long, and import nothing large.
_LONG = ("launch", "server", "data")

_HELP = f"""\
Orbit Runner {__version__}: a config file is the experiment.

usage: runner [COMMAND] [FLAGS]

commands:
{{commands}}

examples:
  runner --experiment=digits
  runner --experiment=resnet_cifar --config_file=configs/runtime/mirrored_2gpu.yaml \\
         --gin_param='trainer.train_steps=1000' --mode=train_and_eval --model_dir=runs/a
  runner show --experiment=digits --task.model.dropout_rate=0.2 --origins

`runner COMMAND --help` lists the flags of a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The arguments after the program's name; those of the process where None.

    Returns:
        The exit code: 0 done, 1 crash or a data set that could not be got, 2 usage or config,
        3 diverged, 4 verify or reproduce found a difference, 5 predict had no answer to some
        items, 138 another member of the cluster was lost, 128 + n for signal n.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except RunnerError as error:
        print(f"runner: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("runner: interrupted; nothing was saved since the last checkpoint", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe is gone (`runner list | head`); there is no one left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(arguments: list[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if first in ("--help", "-h", "help"):
        commands = "\n".join(f"  {name:<9} {text}" for name, text in COMMANDS.items())
        print(_HELP.format(commands=commands), end="")
        return 0
    if first == "--version":
        print(__version__)
        return 0
    if first.startswith("-"):
        first, rest = "run", arguments
    else:
        rest = arguments[1:]
    if first not in COMMANDS:
        raise RunnerError(unknown("command", first, [*COMMANDS]))
    if first in _LONG:
        garbage.resume()
    module = "list_" if first == "list" else first
    return importlib.import_module(f"orbit_runner.cli.{module}").main(rest)


def entry() -> NoReturn:
    """Runs one command and ends the process with its exit code."""
    garbage.put_off()
    code = main()
    if "tensorflow" in sys.modules:
        # Everything is on the disk by now. Taking TensorFlow apart would only cost time: under
        # `mirrored`, destroying an iterator may wait about as long as it has lived.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    entry()
