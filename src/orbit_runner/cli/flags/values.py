"""What the values of flags and arguments are: what completes them, and which are paths.

A parser declares it as the `type` of a flag: `add_argument("run", metavar="RUN", type=RUN)`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from orbit_runner.config.declarations import path_kind
from orbit_runner.config.parsing.search_path import SUFFIXES, experiment_files, fragment_files
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import CONFIG
from orbit_runner.storage.paths import is_remote, path_problem, strip_file_scheme
from orbit_runner.utils.files import (
    is_special,
    output_target,
    special_file_problem,
    write_output,
)

# Texts, each with one line of help.
Candidates = Iterable[tuple[str, str]]

SHARED = (
    "the processes of a cluster share one directory: use one that all of them mount, such as "
    "/gcs/BUCKET/… with Cloud Storage FUSE"
)


@dataclasses.dataclass(frozen=True)
class Value:
    """What the value of a flag or an argument is; the `type` of its declaration.

    Attributes:
        completes: Returns the values that complete a word, and possibly others.
        metavar: What `--help` shows, unless the declaration has a metavar of its own.
    """

    completes: Callable[[str], Candidates]
    metavar: str

    def __call__(self, text: str) -> str:
        """Returns the text. `resolve_paths` changes paths, because errors name the flag."""
        return text


@dataclasses.dataclass(frozen=True)
class PathValue(Value):
    """A path.

    Attributes:
        kind: `input`; `directory`, which may not exist yet; `output file` or `output directory`, in
            which the command writes; or `any URL`.
        remote: Whether it may be the URL of an object store.
        use: What to use instead of such a URL, for messages.
        name: Its name in messages; by default that of the flag, or the metavar of the argument.
        holds_config: Whether it is a run or an experiment, whose settings a command changes.
    """

    kind: str = "input"
    remote: bool = False
    use: str = "use a local path"
    name: str = ""
    holds_config: bool = False

    def problem(self, text: str) -> str:
        """Returns why a path cannot be used, or "" if it can."""
        if self.kind == "any URL":
            return ""
        if problem := path_problem(text, remote=self.remote, use=self.use):
            return problem
        path = strip_file_scheme(text)
        if self.kind == "directory":
            return _directory_problem(path)
        return _output_problem(path, self.kind) if self.kind.startswith("output") else ""


def resolve_paths(arguments: Iterable[argparse.Action], flags: argparse.Namespace) -> None:
    """Expands `~`, turns `file://` URLs into paths, and rejects paths that cannot be used.

    Changes `flags` in place. The shell does not expand `~` in `--model_dir=~/a`. Raises
    `RunnerError` if a URL is not supported, `~` names an unknown user, or an output file cannot be
    written: before the work begins whose result it is for.
    """
    problems: list[tuple[str, str]] = []
    for action in arguments:
        value = action.type
        given = getattr(flags, action.dest, None)
        if not isinstance(value, PathValue):
            continue
        name = value.name or next(iter(action.option_strings), str(action.metavar))
        if given == "" and value.kind.startswith("output"):
            problems.append((name, "is empty; specify a path, or omit it"))
        if not given:
            continue
        texts = [
            _expand_user(text, name) for text in ([given] if isinstance(given, str) else given)
        ]
        problems += [(name, problem) for problem in map(value.problem, texts) if problem]
        if value.kind != "any URL":
            texts = [strip_file_scheme(text) for text in texts]
        setattr(flags, action.dest, texts[0] if isinstance(given, str) else texts)
    if len(problems) == 1:
        ((name, problem),) = problems
        raise RunnerError(problem, path=name, code="bad-path")
    if problems:
        lines = [f"{name}: {problem}" for name, problem in problems]
        raise RunnerError("\n".join(lines), code="bad-path")


def _expand_user(text: str, shown: str) -> str:
    expanded_path = os.path.expanduser(text)
    if expanded_path.startswith("~"):
        user = expanded_path.partition("/")[0]
        raise RunnerError(
            f"got {text!r}, but {user} is not a home directory on this machine\n"
            f"use the full path, or ./{text} for a name that begins with ~",
            path=shown,
            code="bad-path",
        )
    return expanded_path


def _output_problem(text: str, kind: str) -> str:
    if is_remote(text):
        return ""
    if kind == "output file":
        try:
            target = output_target(Path(text))
        except OSError as error:
            return f"cannot write {text}: {error.strerror}"
        if isinstance(target, int) or is_special(target):
            problem = "" if isinstance(target, int) else special_file_problem(target)
            return f"{text} {problem}" if problem else ""
        if _is_redirected_to(target):
            return (
                f"{text} is the file that standard output or standard error is redirected to\n"
                "use another file, or /dev/stdout"
            )
        text = str(target)
    # `os.path`, because methods of `Path` raise an error if the name is too long.
    elif problem := _directory_problem(text):
        return problem
    # Missing directories are created.
    parent = next(
        ancestor for ancestor in Path(text).absolute().parents if os.path.lexists(ancestor)
    )
    if not os.path.isdir(parent):
        return f"cannot write {text}: {parent} is not a directory"
    if not os.access(parent, os.W_OK):
        return f"cannot write {text}: {parent} is not writable"
    return ""


def _directory_problem(text: str) -> str:
    if is_remote(text) or not os.path.lexists(text) or os.path.isdir(text):
        return ""
    kind = "a file" if os.path.isfile(text) else "no directory"
    return f"{text} is {kind}, expected a directory"


def _is_redirected_to(path: Path) -> bool:
    """Returns whether a stream is redirected to a file, which writing would replace."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return True
    return False


def path_setting_values(path: str, word: str) -> Candidates:
    """Returns the files for a setting that is a path; none for other settings."""
    name = path.rpartition(".")[2]
    kind = path_kind(name)
    # Not all settings of Model Garden and of custom tasks are declared as paths.
    if kind in ("dir", "local") or name.endswith("_dir"):
        return _directories(word)
    return _files(word) if kind or name.endswith(("_file", "_path")) else []


def _directory_entries(word: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yields (text, entry) for what is in the directory that a word names up to its last `/`."""
    if "://" in word:
        return
    above, slash, begins = word.rpartition("/")
    try:
        with os.scandir(os.path.expanduser(above + slash) or ".") as unsorted_entries:
            entries = sorted(unsorted_entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(begins) and (begins or not entry.name.startswith(".")):
            yield above + slash + entry.name, entry


def _files(word: str, suffixes: tuple[str, ...] = ("",)) -> Iterator[tuple[str, str]]:
    for text, entry in _directory_entries(word):
        if entry.is_dir():
            yield f"{text}/", ""
        elif entry.name.endswith(suffixes):
            yield text, ""


def _directories(word: str) -> Iterator[tuple[str, str]]:
    return ((f"{text}/", "") for text, entry in _directory_entries(word) if entry.is_dir())


def _runs(word: str) -> Iterator[tuple[str, str]]:
    """Yields run directories, and the directories that may contain some."""
    for text, entry in _directory_entries(word):
        if entry.is_dir():
            is_run = os.path.isfile(os.path.join(entry.path, CONFIG))
            yield (text, "run directory") if is_run else (f"{text}/", "")


def _experiments(word: str) -> Iterator[tuple[str, str]]:
    yield from ((name, "experiment") for name in experiment_files())
    yield from _runs(word)
    yield from (candidate for candidate in _files(word, SUFFIXES) if not candidate[0].endswith("/"))


def _fragments(word: str) -> Iterator[tuple[str, str]]:
    if word.startswith("configs/"):
        yield from ((name, "") for name in fragment_files() if not name.endswith(".gin"))
    else:
        yield "configs/", ""
    yield from _files(word, (".yaml", ".yml", ".json"))


def _configs(word: str) -> Iterator[tuple[str, str]]:
    yield from _experiments(word)
    yield from ((name, "") for name in fragment_files() if word.startswith("configs/"))


def _checkpoints(word: str) -> Iterator[tuple[str, str]]:
    yield "best", "the best checkpoint of the run"
    yield from _files(word)


def _modules(word: str) -> Iterator[tuple[str, str]]:
    """Yields modules in the current directory."""
    for text, entry in _directory_entries(word.replace(".", "/")):
        name = text.replace("/", ".")
        if entry.is_dir() and os.path.isfile(os.path.join(entry.path, "__init__.py")):
            yield from ((name, "package"), (f"{name}.", ""))
        elif entry.name.endswith(".py") and entry.name != "__init__.py":
            yield name.removesuffix(".py"), "module"


def one_of(names: Iterable[str], metavar: str) -> Value:
    """Returns one of several names. `choices=` of argparse would list them in the usage."""
    return Value(lambda word: ((name, "") for name in names), metavar)


# The values of flags of several commands. Others are declared by the command that has them.
RUN = PathValue(_runs, "RUN", remote=True, holds_config=True)
LOCAL_RUN = PathValue(_runs, "RUN", holds_config=True)
RUNS = PathValue(_runs, "DIR")
MODEL_DIR = PathValue(_runs, "DIR", "directory")
EXPERIMENT = PathValue(_experiments, "NAME", remote=True, holds_config=True)
LOCAL_EXPERIMENT = PathValue(_experiments, "RUN|EXPERIMENT", holds_config=True)
CONFIG_FILE = PathValue(_fragments, "FILE", remote=True)
GIN_FILE = PathValue(lambda word: _files(word, (".gin",)), "FILE", remote=True)
ANY_CONFIG = PathValue(_configs, "FILE", remote=True)
SWEEP_FILE = PathValue(lambda word: _files(word, (".yaml", ".yml", ".json")), "FILE")
CHECKPOINT = PathValue(_checkpoints, "STEP|best|PATH")
DIRECTORY = PathValue(_directories, "DIR")
DATASET = PathValue(_files, "DATA")
OUTPUT_FILE = PathValue(_files, "FILE", "output file")
OUTPUT_DIRECTORY = PathValue(_directories, "DIR", "output directory")
ITEM = Value(_files, "ITEM")
DATA_DIRECTORY = Value(_directories, "DIR")  # a setting, which is checked with the config
MODULE = Value(_modules, "MODULE")
# Completed by the settings of the experiment on the command line.
SETTING = Value(lambda word: (), "BINDING")
SETTINGS_TEXT = PathValue(SETTING.completes, "TEXT", remote=True)


def write_flag_output(flag: str, path: str, content: str | bytes) -> None:
    """Writes the file that a flag names. Raises RunnerError if it cannot be written."""
    try:
        write_output(Path(path), content)
    except OSError as error:
        raise RunnerError(
            f"cannot write {path}: {error.strerror or error}", path=flag, code="not-writable"
        ) from error
