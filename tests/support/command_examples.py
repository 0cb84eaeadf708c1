"""Runs the examples of all commands in this process, without TensorFlow and other processes.

`python -m tests.support.command_examples DIRECTORY RUN` prints a line of JSON for each example and
way. RUN is the run directory that the examples read.
A command that needs TensorFlow, another process or the network ends there; its line has `stopped`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from orbit_runner.cli.command import Command
from orbit_runner.cli.flags.values import PathValue
from orbit_runner.cli.main import COMMANDS, load_command, main
from orbit_runner.errors import RunnerError
from orbit_runner.utils.streams import check_stdout, open_tolerant_stream

_TENSORFLOW = ("tensorflow", "tf_keras", "keras", "orbit")
# A directory in which nobody can create a file, not even the superuser.
READ_ONLY = Path("/sys")
# They do nothing but start other processes and wait for them.
_OF_PROCESSES = ("sweep", "launch", "server")
_SECONDS = 20  # A command that waits for other processes is stopped after these.
WAYS = ("plain", "json", "read-only directory", "closed pipe", "full disk")


class Stopped(BaseException):
    """The command needs what it cannot have here. No `except Exception` catches it."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a command did.

    Attributes:
        command: Its name.
        example: Its arguments.
        way: One of `WAYS`.
        code: The exit code, None if it was stopped or raised an error.
        stopped: What it needs: a module, or other processes or machines.
        crash: The traceback of an error.
        out: What it printed to standard output.
        err: What it printed to standard error.
    """

    command: str
    example: str
    way: str
    code: int | None = None
    stopped: str = ""
    crash: str = ""
    out: str = ""
    err: str = ""


class _NoTensorFlow:
    """A finder that ends the command that imports TensorFlow."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in _TENSORFLOW:
            raise Stopped(name)


_Popen = subprocess.Popen


def _start_process(words: Any, *args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
    """Starts git only."""
    if words[0] != "git":
        _stop()
    return _Popen(words, *args, **kwargs)


def _stop(*args: object) -> NoReturn:
    raise Stopped("other processes or machines")


def all_commands() -> list[Command]:
    """Returns every command."""
    return [*map(load_command, COMMANDS)]


def write_inputs(command: Command, arguments: list[str], folder: Path, run: Path) -> None:
    """Writes what the arguments of an example read: copies of a run, and small files."""
    flags = command.parse(command.parser(), arguments)
    for action in command.parser().arguments:
        if not isinstance(action.type, PathValue) or action.type.kind != "input":
            continue
        texts: Any = getattr(flags, action.dest, None) or []
        for text in [texts] if isinstance(texts, str) else texts:
            if text.startswith("runs/"):
                shutil.copytree(run, folder / text)
    shutil.copytree(run, folder / "runs" / "another")
    (folder / "rows.csv").write_text("a,kind\n" + "".join(f"{n},{n % 2}\n" for n in range(40)))
    (folder / "iris.csv").write_text((folder / "rows.csv").read_text())
    (folder / "digit.png").write_bytes(b"")


@contextlib.contextmanager
def _working_directory(path: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _native_errors(path: Path) -> Iterator[None]:
    """Writes what goes to the descriptor of standard error, past `sys.stderr`, to a file."""
    before = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _descriptor(way: str) -> int:
    if way == "full disk":
        return os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def run_example(command: Command, example: str, way: str, folder: Path, run: Path) -> Outcome:
    """Runs one example in a way, in a directory that has its inputs."""
    arguments = shlex.split(example)
    folder.mkdir(parents=True)
    inputs = folder
    with _working_directory(folder):
        write_inputs(command, arguments, folder, run)
    words = [command.name, *arguments]
    if way == "json":
        at = words.index("--") if "--" in words else len(words)
        words.insert(at, "--json")
    if way == "read-only directory":
        words = [word.replace("runs/", f"{folder}/runs/") for word in words]
        folder = READ_ONLY
    out, err = io.StringIO(), io.StringIO()
    native = Path(f"{inputs}.err")
    outcome = Outcome(command.name, example, way)
    fails = way in ("closed pipe", "full disk")
    stream: Any = open_tolerant_stream(_descriptor(way)) if fails else out
    signal.alarm(_SECONDS)
    try:
        with (
            _working_directory(folder),
            _native_errors(native),
            contextlib.redirect_stdout(stream),
            contextlib.redirect_stderr(err),
        ):
            code = main(words)
            if fails:
                try:
                    check_stdout()
                except RunnerError as error:
                    code = error.exit_code
        outcome = dataclasses.replace(outcome, code=code)
    except Stopped as stop:
        outcome = dataclasses.replace(outcome, stopped=str(stop))
    except SystemExit as done:
        outcome = dataclasses.replace(outcome, code=int(done.code or 0))
    except BaseException:
        outcome = dataclasses.replace(outcome, crash=traceback.format_exc())
    finally:
        signal.alarm(0)
    text = err.getvalue() + native.read_text(encoding="utf-8")
    return dataclasses.replace(outcome, out=out.getvalue(), err=text)


def ways_of(command: Command, example: str) -> Iterator[str]:
    """Yields the ways in which an example can be run."""
    options = {option for action in command.parser().arguments for option in action.option_strings}
    for way in WAYS:
        if way != "json" or ("--json" in options and "--json" not in example):
            yield way


def run_all(directory: Path, run: Path) -> None:
    """Runs all examples in all ways, and prints the outcomes."""
    sys.meta_path.insert(0, _NoTensorFlow())  # type: ignore[arg-type]
    subprocess.Popen = _start_process  # type: ignore[assignment, misc]
    socket.create_connection = _stop
    signal.signal(signal.SIGALRM, _stop)
    number = 0
    for command in all_commands():
        for example in () if command.name in _OF_PROCESSES else command.examples:
            for way in ways_of(command, example):
                number += 1
                outcome = run_example(command, example, way, directory / str(number), run)
                print(json.dumps(dataclasses.asdict(outcome)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("run", type=Path)
    options = parser.parse_args()
    run_all(options.directory.absolute(), options.run.absolute())
