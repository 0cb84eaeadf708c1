"""Writes a project of the user's own from the files in `templates/project`."""

from __future__ import annotations

import contextlib
import importlib.machinery
import keyword
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from orbit_runner.errors import RunnerError, format_list, shorten
from orbit_runner.registry import TASKS

TEMPLATE = Path(__file__).resolve().parents[1] / "templates" / "project"
# Maps each file of a project to its purpose.
FILES = {
    "README.md": "commands, and what to change",
    "Makefile": "make run, make test",
    "experiments/my_project.yaml": "the experiment: settings of the task and of training",
    "my_project/__init__.py": "the package",
    "my_project/config.py": "declares the settings of the task, and registers it",
    "my_project/data.py": "reads the CSV files",
    "my_project/task.py": "network, batches, loss and metrics",
    "data/train.csv": "120 rows to train on",
    "data/validation.csv": "30 rows to evaluate on",
    "tests/test_my_project.py": "checks that the task learns, and that a resumed run is exact",
    "pyproject.toml": "makes the package installable, and registers its task with Orbit Runner",
    ".gitignore": "excludes run directories from git",
}
# Placeholders in the template: the name of the package, and the prefix of its classes.
_PLACEHOLDERS = re.compile("my_project|MyProject")
_NAME = re.compile("[A-Za-z](?:[A-Za-z0-9_]*[A-Za-z0-9])?")
_RULE = "ASCII letters, digits and _, from a letter to a letter or digit"
_RESERVED_NAMES = ("data", "experiments", "runs", "tests")


def write_project(directory: Path, name: str) -> dict[str, str]:
    """Writes all files of a project, or none, and returns the purpose of each.

    Args:
        directory: The directory; it is created if it does not exist.
        name: The name of the package.

    Raises:
        RunnerError: The directory contains files, or cannot be written.
    """
    check_empty(directory)
    texts = {
        _fill_placeholders(path, name): _fill_placeholders(_read_template(path), name)
        for path in FILES
    }
    write_files(directory, texts)
    return {_fill_placeholders(path, name): purpose for path, purpose in FILES.items()}


def write_files(directory: Path, texts: Mapping[str, str]) -> None:
    """Writes texts by their paths below a directory: all of them, or none.

    Raises `RunnerError` if they cannot be written.
    """
    try:
        with contextlib.ExitStack() as undo:
            for path, text in texts.items():
                _make_directory((directory / path).parent, undo)
                undo.callback((directory / path).unlink, missing_ok=True)
                (directory / path).write_text(text, encoding="utf-8")
            undo.pop_all()
    except OSError as error:
        raise RunnerError(
            f"cannot write {error.filename or directory}: {error.strerror}\n"
            "nothing was written; use a directory that can be created or is empty",
            path="DIR",
            code="not-writable",
        ) from None


def package_name(directory: Path, name: str | None) -> str:
    """Returns the name of the package: `name`, or one made from the last part of `directory`.

    Raises `RunnerError`, with a suggestion, if no package can have the name.
    """
    candidate = make_identifier(directory.resolve().name) if name is None else name
    if name is None and not candidate:
        raise RunnerError(
            f"got {str(directory)!r}, which has no ASCII letters or digits to name the "
            "package after\npass a name, such as --name=my_project",
            path="DIR",
            code="bad-path",
        )
    problem = _name_problem(candidate)
    if not problem:
        return candidate
    got = "got" if name is not None else "the package would be named"
    raise RunnerError(
        f"{got} {shorten(repr(candidate))}, {problem}\n"
        f"pass another name, such as --name={_suggest_name(candidate)}",
        path="DIR" if name is None else "--name",
        code="not-allowed",
    )


def check_empty(directory: Path) -> None:
    """Raises `RunnerError` if a directory contains files, or is something else."""
    if not os.path.lexists(directory):
        return
    if not os.path.isdir(directory):
        raise RunnerError(
            f"{directory} is not a directory\nuse one that is empty or does not exist",
            path="DIR",
            code="wrong-file-type",
        )
    try:
        # A repository that has just been created contains only .git.
        names = sorted(name for name in os.listdir(directory) if name != ".git")
    except OSError as error:
        raise RunnerError(
            f"cannot read {directory}: {error.strerror}", path="DIR", code="unreadable-file"
        ) from None
    if names:
        raise RunnerError(
            f"{directory} contains files, which `runner init` does not overwrite\n"
            f"{format_list(names, 3)}\nuse a directory that is empty or does not exist",
            path="DIR",
            code="already-exists",
        )


def _make_directory(directory: Path, undo: contextlib.ExitStack) -> None:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir()
        undo.callback(path.rmdir)


def _read_template(path: str) -> str:
    # In this repository, a file named .gitignore would apply to the template itself.
    return (TEMPLATE / path.replace(".gitignore", "gitignore")).read_text(encoding="utf-8")


def _fill_placeholders(text: str, name: str) -> str:
    """Returns a text or a path of the template with the names of the project."""
    names = {"my_project": name, "MyProject": _class_name(name)}
    return _PLACEHOLDERS.sub(lambda match: names[match[0]], text)


def _class_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def make_identifier(text: str) -> str:
    """Returns a text as the name of a package; "" if it has no letters and digits."""
    name = re.sub(r"[\W_]+", "_", text.lower(), flags=re.ASCII).strip("_")
    return f"project_{name}" if name[:1].isdigit() else name


def _suggest_name(name: str) -> str:
    suggestion = make_identifier(name) or "project"
    return f"my_{suggestion}" if _name_problem(suggestion) else suggestion


def _name_problem(name: str) -> str:
    """Returns why no package of a project can have a name, or "" if one can."""
    if not _NAME.fullmatch(name):
        return f"expected the name of a package\nallowed: {_RULE}"
    if keyword.iskeyword(name):
        return "a keyword of Python"
    if name.lower() in _RESERVED_NAMES:
        return "the name of another directory of the project"
    if name in TASKS:
        return "the name of a task of Orbit Runner"
    if name.lower() == "task":
        return "so that its config would have the name of the base class, TaskConfig"
    if name in sys.stdlib_module_names or _is_installed(name):
        return "the name of a module, which the package would hide"
    return ""


def _is_installed(name: str) -> bool:
    # The current directory is searched, too, if it is on the path; a project there is no conflict.
    places = [place for place in sys.path if place and Path(place).resolve() != Path.cwd()]
    return importlib.machinery.PathFinder.find_spec(name, places) is not None
