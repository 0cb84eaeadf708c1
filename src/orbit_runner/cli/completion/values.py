"""What completion offers as the value of a flag: names, files and run directories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from orbit_runner.config.declarations import path_kind
from orbit_runner.config.parsing.search_path import SUFFIXES, experiment_files, fragment_files
from orbit_runner.config.schema.modes import MODES
from orbit_runner.config.schema.trainer import EXPORT_FORMATS
from orbit_runner.run_directory.paths import CONFIG

# Texts, each with one line of help.
Candidates = list[tuple[str, str]]


def subcommands(command: str) -> tuple[str, ...]:
    """Returns the words that can follow a command and select its flags."""
    if command == "data":
        return ("list", "get")
    if command == "manifest":
        from orbit_runner.launch.manifests import TARGETS

        return tuple(TARGETS)
    return ()


def flag_values(name: str, word: str) -> Candidates:
    """Returns the values of a flag or argument, given by its name in the parser.

    `word` is the beginning of the value. Values that do not begin with it may be included.
    """
    return [*_VALUES[name](word)] if name in _VALUES else []


def path_setting_values(path: str, word: str) -> Candidates:
    """Returns the files for a setting that is a path; none for other settings."""
    name = path.rpartition(".")[2]
    kind = path_kind(name)
    # Not all settings of Model Garden and of custom tasks are declared as paths.
    if kind in ("dir", "local") or name.endswith("_dir"):
        return [*_directories(word)]
    return [*_files(word)] if kind or name.endswith(("_file", "_path")) else []


def _directory_entries(word: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yields (text, entry) for what is in the directory that a word names up to its last `/`."""
    if "://" in word:
        return
    above, slash, begins = word.rpartition("/")
    try:
        with os.scandir(os.path.expanduser(above + slash) or ".") as found:
            entries = sorted(found, key=lambda entry: entry.name)
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
    yield from (found for found in _files(word, SUFFIXES) if not found[0].endswith("/"))


def _fragments(word: str) -> Iterator[tuple[str, str]]:
    if word.startswith("configs/"):
        yield from ((name, "") for name in fragment_files() if not name.endswith(".gin"))
    else:
        yield "configs/", ""
    yield from _files(word, (".yaml", ".yml", ".json"))


def _configs(word: str) -> Iterator[tuple[str, str]]:
    yield from _experiments(word)
    yield from ((name, "") for name in fragment_files() if word.startswith("configs/"))


def _sweep_files(word: str) -> Iterator[tuple[str, str]]:
    return _files(word, (".yaml", ".yml", ".json"))


def _checkpoints(word: str) -> Iterator[tuple[str, str]]:
    yield "best", "the best checkpoint of the run"
    yield from _files(word)


def _datasets(word: str) -> Iterator[tuple[str, str]]:
    from orbit_runner.datasets.catalogue import SETS

    return ((name, data.help) for name, data in SETS.items())


def _modes() -> Iterator[tuple[str, str]]:
    # Imported only here: it imports NumPy.
    from orbit_runner.cli import finetune

    return ((name, "") for name in (*MODES, finetune.MODE))


def _modules(word: str) -> Iterator[tuple[str, str]]:
    """Yields modules in the current directory."""
    for text, entry in _directory_entries(word.replace(".", "/")):
        name = text.replace("/", ".")
        if entry.is_dir() and os.path.isfile(os.path.join(entry.path, "__init__.py")):
            yield from ((name, "package"), (f"{name}.", ""))
        elif entry.name.endswith(".py") and entry.name != "__init__.py":
            yield name.removesuffix(".py"), "module"


# By the name of the parsed flag.
_VALUES: dict[str, Callable[[str], Iterable[tuple[str, str]]]] = {
    "experiment": _experiments,
    "trained": _experiments,
    "config_file": _fragments,
    "gin_file": lambda word: _files(word, (".gin",)),
    "mode": lambda word: _modes(),
    "enable_async_checkpointing": lambda word: (("true", ""), ("false", "")),
    "model_dir": _runs,
    "run": _runs,
    "a": _runs,
    "b": _runs,
    "where": _runs,
    "inspected": _experiments,
    "profiled": _experiments,
    "keep": _directories,
    "item": _files,
    "files": _configs,
    "sweep_file": _sweep_files,
    "left": _configs,
    "right": _configs,
    "checkpoint": _checkpoints,
    "format": lambda word: ((name, "") for name in EXPORT_FORMATS),
    "data_dir": _directories,
    "dir": _directories,
    "to": _directories,
    "logs": _directories,
    "project": _directories,
    "origin": _directories,
    "dataset": _datasets,
    "imports": _modules,
}
